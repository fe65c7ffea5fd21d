"""The documentation as a site: it is built without a complaint, and its pages and search need no network."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\bsrc=\"?(http[^\s\">]+)|<link[^>]*\bhref=\"?(http[^\s\">]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "--site-dir", str(place)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture
def offline(browser: "Browser") -> Iterator["BrowserContext"]:
    """A browser that reaches no network."""
    context = browser.new_context(offline=True)
    context.route(re.compile("^https?:"), lambda route: route.abort())
    yield context
    context.close()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    assert len(pages) > 25
    for page in pages:
        assert "\\|" not in page.read_text(encoding="utf-8"), page.name
        found = ["".join(match) for match in LOADED.findall(page.read_text(encoding="utf-8"))]
        assert found == [], page.name


def test_pages_open_from_a_folder_and_the_search_finds(site: Path, offline: "BrowserContext") -> None:
    page = offline.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: troubles.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("residual")
    result = page.locator(".md-search-result__link").first
    result.wait_for(timeout=60_000)
    assert "residual" in page.locator(".md-search-result__list").inner_text().lower()
    result.click()
    page.wait_for_url(re.compile(r"\.html"))
    assert troubles == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(site: Path, offline: "BrowserContext", width: int) -> None:
    page = offline.new_page()
    page.set_viewport_size({"width": width, "height": 800})
    for name in ("index", "concepts", "recipe", "findings"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_drawings_follow_the_theme(site: Path, offline: "BrowserContext") -> None:
    page = offline.new_page()
    page.emulate_media(color_scheme="light")
    page.goto((site / "concepts.html").as_uri())
    colour = "getComputedStyle(document.querySelector('svg.drawing .paper')).fill"
    light = page.evaluate(colour)
    page.locator("label[for=__palette_1]:visible").click()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    assert page.evaluate(colour) != light
