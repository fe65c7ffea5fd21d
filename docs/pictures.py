"""Takes the pictures of the documentation: a real report, its denoising viewer, and `unmask play`, in Chromium.

python docs/pictures.py                         runs the demo in a temporary folder first (some minutes)
python docs/pictures.py --demo unmask-demo      takes the report of a demo that was run before

Writes docs/pictures/*.webp. Needs Chromium of the system and playwright (`pip install -e .[dev]`).
"""

import argparse
import base64
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import unmask
from unmask import lab
from unmask.play.server import PlayServer
from unmask.play.session import Loading, Session

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
FOLDER = Path(__file__).parent / "pictures"
MOST_BYTES = 150_000
QUALITY = 80
WIDTH, SHARPNESS = 1180, 1.6


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", type=Path, help="Folder of a demo that was run. [run one]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, _browser() as browser:
        report = _report(options.demo or Path(scratch) / "demo")
        with _page(browser, report.as_uri()) as page:
            _take(page, "report", _top_of_report)
            _take(page, "viewer", _viewer)
        with _served() as address, _page(browser, address) as page:
            _take(page, "play", _race)


def _report(folder: Path) -> Path:
    """The page that a demo ends with."""
    recipe = lab.demo(folder)
    outcome = lab.run(recipe, slots=2, store=folder / "results", retry_failed=True)
    return lab.report(outcome.experiment, store=folder / "results").page.resolve()


Box = dict[str, float]


def _top_of_report(page: "Page") -> Box:
    """The verdict and the frontier beside it."""
    box = _box(page, "main")
    end = _box(page, ".summary")
    return {**box, "height": end["y"] + end["height"] - box["y"] + 8}


def _viewer(page: "Page") -> Box:
    """The denoising viewer in the middle of an answer."""
    last = int(page.get_attribute("#viewer-step", "max") or 0)
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    for _ in range(last * 2 // 5):
        page.click("#viewer-forward")
    return _box(page, "#viewer-box")


def _race(page: "Page") -> Box:
    """Two settings after their decoding, from the counters to the answers."""
    page.get_by_role("button", name="Threshold 0.9 and 0.6").click()
    page.select_option("#pace", "0")
    for _ in range(2):  # the first decoding of a process is slower than the ones after it
        page.click("#run")
        page.locator("#status", has_text="Done.").wait_for()
        page.locator("#answers:visible").wait_for()
    page.wait_for_timeout(400)
    first, last = _box(page, "#race"), _box(page, "#answers")
    return {**first, "height": last["y"] + last["height"] - first["y"] + 8}


RECTANGLE = """element => {
  const {x, y, width, height} = element.getBoundingClientRect();
  return {x: x - 8, y: y + scrollY - 8, width: width + 16, height: height + 16};
}"""


def _box(page: "Page", selector: str) -> Box:
    """Where an element lies on the whole page, with a margin."""
    box: Box = page.locator(selector).first.evaluate(RECTANGLE)
    return {**box, "x": max(0.0, box["x"]), "y": max(0.0, box["y"])}


def _take(page: "Page", name: str, prepared: Callable[["Page"], Box]) -> None:
    """Write one picture."""
    page.add_style_tag(content=".top { display: none !important; }")
    box = prepared(page)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": height})  # what is outside of it would be blurred
    page.wait_for_timeout(300)
    clip = {**box, "scale": SHARPNESS}
    session = page.context.new_cdp_session(page)
    shot: dict[str, Any] = {
        "format": "webp",
        "quality": QUALITY,
        "clip": clip,
    }
    picture = base64.b64decode(session.send("Page.captureScreenshot", shot)["data"])
    if len(picture) > MOST_BYTES:
        raise SystemExit(f"{name} has {len(picture)} bytes; at most {MOST_BYTES} are kept in the repository.")
    (FOLDER / f"{name}.webp").write_bytes(picture)
    print(f"{FOLDER.name}/{name}.webp: {len(picture):,} bytes")


@contextmanager
def _served() -> Iterator[str]:
    """The address of a server on the embedded model."""
    loading = Loading("embedded", lambda checkpoint, mask: unmask.load(checkpoint, mask_token_id=mask))
    server = PlayServer(Session(loading))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.address
    server.shutdown()
    server.server_close()


@contextmanager
def _browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def _page(browser: "Browser", address: str) -> Iterator["Page"]:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900}, device_scale_factor=SHARPNESS, color_scheme="light"
    )
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


if __name__ == "__main__":
    main()
