"""Settings of every test: one thread, so that rounding does not depend on the machine's cores, and random examples
whose seed is made of the commit: each commit tries new ones, and a failure is there again on the same commit. Beside
them a browser to look at pages with."""

import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

import unmask

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
REQUIRED = "UNMASK_REQUIRE_CHROMIUM"

torch.set_num_threads(1)
if os.environ.get("UNMASK_TEST_DEVICE") == "pretended":
    # The device must exist before any test module asks for it, and is watched until the process ends.
    from device.pretended import WATCH

    WATCH.__enter__()
settings.register_profile("by_commit", deadline=None, print_blob=True, database=None, max_examples=12)
settings.load_profile("by_commit")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where engines of tests compute: the CPU, a pretended device, or what `make test-gpu` names."""
    return torch.device(os.environ.get("UNMASK_TEST_DEVICE", "cpu"))


def seed_of_the_commit() -> int:
    """A number made of the commit that is checked out, or of the version where there is no repository."""
    command = ["git", "rev-parse", "HEAD"]
    asked = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    origin = asked.stdout.strip() if asked.returncode == 0 else unmask.__version__
    return int(sha256(origin.encode()).hexdigest()[:8], 16)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give hypothesis its seed, unless `--hypothesis-seed` already does."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seed_of_the_commit())


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed, so that a failure can be repeated on another commit."""
    return f"examples drawn with --hypothesis-seed={config.option.hypothesis_seed}"


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
