"""The page in a real browser: sorting, filtering, paging, the viewer, the theme, the keyboard; it asks nothing.

Screenshots are left in the test's folder (pytest --basetemp keeps it) for people to look at.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from invented_store import write_store

from unmask.lab.outcomes import write_report
from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.report.samples import flips_of, with_recordings
from unmask.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> #### {value}"


def written(store: Store, folder: Path, document: Document | None = None) -> Path:
    document = document or gather(store, ["05_invented"])
    tasks = [task for part in document.parts for task in part.tasks]
    document = replace(document, flips=tuple(flips_of(tasks)))
    return write_report(with_recordings(document, store, None), folder)[1]


@pytest.fixture(scope="module")
def report(invented: Store, document: Document, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(invented, tmp_path_factory.mktemp("report"), document)


class Watched:
    """A page and everything that went wrong or out of it."""

    def __init__(self, browser: "Browser", file: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1240, "height": 900}, **options})
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.file = file

    def close(self) -> None:
        """Nothing was complained of, and nothing but the file itself was asked for."""
        self.context.close()
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith(("data:", self.file.as_uri()))] == []


@pytest.fixture
def page(browser: "Browser", report: Path) -> Iterator["Page"]:
    watched = Watched(browser, report)
    yield watched.page
    watched.close()


def table(page: "Page") -> Any:
    return page.locator("section.task").first.locator("table.results").first


def cells(page: "Page", number: int) -> list[str]:
    texts = table(page).locator(f"tbody tr > :nth-child({number})").all_inner_texts()
    return [text.split("\n")[0].split(" ")[0] for text in texts]


def test_headings_sort_numbers_and_names_both_ways(page: "Page") -> None:
    heading = table(page).locator("thead th").nth(1)
    heading.locator("button").click()
    values = [float(text) for text in cells(page, 2)]
    assert values == sorted(values)
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert [float(text) for text in cells(page, 2)] == sorted(values, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    table(page).locator("thead th").first.locator("button").press("Enter")
    assert cells(page, 1) == sorted(cells(page, 1))
    assert heading.get_attribute("aria-sort") is None


def test_what_is_not_known_stays_at_the_end(page: "Page") -> None:
    drop = table(page).locator("thead th").nth(2).locator("button")
    for _ in range(2):
        drop.click()
        assert cells(page, 1)[-1] == "k1_first"


def test_the_filter_hides_rows_of_all_tables(page: "Page") -> None:
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("k2")
    shown = table(page).locator("tbody tr:visible th").all_inner_texts()
    assert [name.split("\n")[0] for name in shown] == ["k2_first", "k2_middle", "k2_last"]
    page.fill("#filter", "")
    assert table(page).locator("tbody tr:visible").count() == 11


def test_the_theme_follows_the_system_and_the_switch(browser: "Browser", report: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        watched = Watched(browser, report, color_scheme=scheme)
        background = "getComputedStyle(document.body).backgroundColor"
        colours[scheme] = watched.page.evaluate(background)
        watched.page.click("#theme")
        colours[f"{scheme}, switched"] = watched.page.evaluate(background)
        assert watched.page.get_attribute("#theme", "aria-pressed") == str(scheme == "light").lower()
        watched.page.keyboard.press("d")
        assert watched.page.evaluate(background) == colours[scheme]
        watched.close()
    assert colours["light"] == colours["dark, switched"] != colours["dark"] == colours["light, switched"]


def test_the_keyboard_reaches_everything(page: "Page") -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    seen = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if "viewer-pace" in seen:
            break
    assert {"BUTTON", "SUMMARY", "flip-search", "viewer-box", "viewer-play", "viewer-pace"} <= seen
    page.locator("#flip-search").focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_viewer_steps_plays_and_pauses(page: "Page") -> None:
    def status() -> str:
        return page.inner_text("#viewer-status")

    assert status() == "Step 0 of 9"
    assert page.locator("#viewer-panels .panel").count() == 2
    assert page.locator("#viewer-panels .fresh").count() == 0
    page.click("#viewer-forward")
    page.click("#viewer-forward")
    assert status() == "Step 2 of 9"
    assert page.locator("#viewer-panels .panel >> nth=0 >> .fresh").all_inner_texts() == [
        "word1 ",
        "<b>&amp; ",
    ]
    page.focus("#viewer-box")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert status() == "Step 4 of 9"
    second = page.locator("#viewer-panels .panel >> nth=1")
    assert "16 of 24 layers replayed (residual)" in second.locator(".caption").inner_text()
    assert second.locator("rect.replay").count() == 16 * 8
    assert second.locator("rect.compute").count() == 8 * 8
    page.keyboard.press("End")
    assert status() == "Step 9 of 9"
    assert page.is_disabled("#viewer-forward")
    page.keyboard.press("Home")
    page.select_option("#viewer-pace", "120")
    page.focus("#viewer-box")
    page.keyboard.press(" ")
    assert page.get_attribute("#viewer-play", "aria-pressed") == "true"
    page.locator("#viewer-status", has_text=re.compile("Step [2-9] of")).wait_for()
    page.keyboard.press(" ")
    held = status()
    assert page.get_attribute("#viewer-play", "aria-pressed") == "false"
    page.wait_for_timeout(300)
    assert status() == held
    page.click("#viewer-play")
    page.locator("#viewer-status", has_text="Step 9 of 9").wait_for()
    assert page.inner_text("#viewer-play") == "Play"


def test_another_sample_can_be_chosen(page: "Page") -> None:
    page.click("#viewer-last")
    page.select_option("#viewer-sample", "1")
    assert page.inner_text("#viewer-status") == "Step 0 of 9"
    assert "<i>1</i>" in str(page.text_content("#viewer-prompt"))


def test_flips_are_searched_and_narrowed(page: "Page") -> None:
    page.select_option(
        "#flip-configuration", label=page.locator("#flip-configuration option").nth(3).inner_text()
    )
    total = page.inner_text("#flip-count")
    page.select_option("#flip-direction", "0")
    assert set(page.locator("#flip-list .direction").all_inner_texts()) == {"lost"}
    page.select_option("#flip-direction", "")
    first = page.locator("#flip-list h4").first.inner_text().split("lost")[0].split("gained")[0].strip()
    page.fill("#flip-search", first)
    assert page.locator("#flip-list .flip").count() >= 1
    page.fill("#flip-search", "no such thing anywhere")
    assert page.locator("#flip-list .flip").count() == 0
    page.fill("#flip-search", "")
    assert page.inner_text("#flip-count") == total
    assert page.locator("#flip-list mark").count() > 0


def test_thousands_of_flips_are_shown_a_page_at_a_time(browser: "Browser", tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "many", rows=10_000, configurations=["k1_first", "k3_first"], tasks=("arith",)
    )
    watched = Watched(browser, written(store, tmp_path / "out"))
    page = watched.page
    assert page.locator("#flip-list .flip").count() == 10
    pages = int(page.inner_text("#flip-page").split()[-1].replace(",", ""))
    assert pages > 100
    page.click("#flip-next")
    assert page.inner_text("#flip-page").startswith("Page 2 of ")
    assert page.locator("#flip-list .flip").count() == 10
    assert page.evaluate("document.getElementsByTagName('*').length") < 4000
    page.click("#flip-previous")
    assert page.is_disabled("#flip-previous")
    watched.close()


def test_what_a_model_wrote_does_not_run(browser: "Browser", tmp_path: Path) -> None:
    store = write_store(tmp_path / "evil", rows=80, answer=EVIL, configurations=["k1_first", "k3_first"])
    watched = Watched(browser, written(store, tmp_path / "out"))
    assert "<script>window.hacked" in watched.page.inner_text("#flip-list")
    assert watched.page.evaluate("window.hacked") is None
    assert watched.page.locator("#flip-list img").count() == 0
    watched.close()


def test_marks_say_what_they_are(page: "Page") -> None:
    mark = page.locator(".picture.frontier .spot").first
    mark.scroll_into_view_if_needed()
    mark.hover()
    assert page.is_visible("#tip")
    assert "times" in page.inner_text("#tip")
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {"color_scheme": "light"}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 360, "height": 780}}),
    ],
)
def test_it_fits_every_width(
    browser: "Browser", report: Path, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    watched = Watched(browser, report, **options)
    page = watched.page
    page.click("#viewer-last")
    page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert (tmp_path / f"{name}.png").stat().st_size > 50_000
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, (
        "nothing but tables and the timeline may be wider than the screen, and those scroll by themselves"
    )
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('.picture:not(.timeline)')].map("
        "p => 11.5 * p.getBoundingClientRect().width / p.viewBox.baseVal.width))"
    )
    assert smallest > 7.5, "letters of pictures must stay readable"
    watched.close()


def test_print_has_no_controls_and_light_paper(browser: "Browser", report: Path) -> None:
    watched = Watched(browser, report, color_scheme="dark")
    watched.page.emulate_media(media="print")
    assert watched.page.is_hidden("header.top")
    assert watched.page.is_hidden("#flip-controls")
    assert watched.page.locator(".picture.ledger .bar").first.is_visible()
    ink = watched.page.evaluate("getComputedStyle(document.querySelector('h1')).color")
    assert ink == "rgb(29, 31, 35)"
    watched.close()
