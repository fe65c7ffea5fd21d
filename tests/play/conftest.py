"""A server on the embedded model, and a browser to look at its page with."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import unmask
from unmask.play.server import PlayServer
from unmask.play.session import Loading, Session

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
REQUIRED = "UNMASK_REQUIRE_CHROMIUM"


@pytest.fixture(scope="session")
def session() -> Session:
    """Loads the embedded model once for all tests."""
    return Session(Loading("embedded", lambda checkpoint, mask: unmask.load(checkpoint, mask_token_id=mask)))


@pytest.fixture(scope="session")
def server(session: Session) -> Iterator[PlayServer]:
    """Serves on a free port."""
    found = PlayServer(session)
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


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
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()
