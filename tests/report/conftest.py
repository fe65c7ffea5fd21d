"""Stores to report on, and a browser to look at pages with."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from invented_store import add_replays, write_store

from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))  # its simulated sweeps are reported on too
CHROMIUM = Path("/usr/bin/chromium")
REQUIRED = "UNMASK_REQUIRE_CHROMIUM"


@pytest.fixture(scope="session")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An invented experiment with replays. Shared by all tests: do not change it."""
    store = write_store(tmp_path_factory.mktemp("invented") / "results", rows=400)
    add_replays(store, "05_invented", ["k1_first", "k2_last"])
    return store


@pytest.fixture(scope="session")
def document(invented: Store) -> Document:
    """What there is to say of it."""
    return gather(invented, ["05_invented"])


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium of the system, if it is there."""
    required = bool(os.environ.get(REQUIRED))
    if not CHROMIUM.exists():
        message = f"{CHROMIUM} is not installed (Debian package chromium)"
        pytest.fail(message) if required else pytest.skip(message)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        message = "playwright is not installed (pip install -e .[dev])"
        pytest.fail(message) if required else pytest.skip(message)
    with sync_playwright() as playwright:
        # Containers have no user namespaces, so the browser's own sandbox cannot start there.
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()
