"""The page in a real browser: a decoding on the embedded model, saved and opened again without the server.

Screenshots are left in the test's folder (pytest --basetemp keeps it) for people to look at.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unmask.cli.play import PAGE
from unmask.play.server import PlayServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Opened = Callable[..., "Page"]
PICTURE = "canvas => canvas.toDataURL()"


@pytest.fixture
def opened(browser: "Browser") -> Iterator[Opened]:
    """Opens pages; afterwards nothing was complained of and nothing else was asked for."""
    contexts: list[Any] = []
    errors: list[str] = []
    requests: list[str] = []
    addresses: list[str] = []

    def visit(address: str, **options: Any) -> "Page":
        context = browser.new_context(**{"viewport": {"width": 1240, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        addresses.append(address.split("?")[0])
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    refused = "the server responded with a status of 422"  # what the browser notes of bad settings
    assert [error for error in errors if refused not in error] == []
    ours = (*addresses, "data:", "blob:")
    assert [url for url in requests if not url.startswith(ours)] == []


def preset(page: "Page", name: str) -> None:
    page.get_by_role("button", name=name).click()


def decoded(page: "Page") -> None:
    page.select_option("#pace", "0")
    page.click("#run")
    page.locator("#status", has_text="Done.").wait_for()
    page.locator("#answers:visible").wait_for()


def counters(page: "Page") -> dict[str, list[str]]:
    lines = page.locator("#counters tbody tr").all()
    return {line.locator("th").inner_text(): line.locator("td").all_inner_texts() for line in lines}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_two_settings_are_decoded_compared_and_saved(
    server: PlayServer, opened: Opened, tmp_path: Path
) -> None:
    page = opened(server.address)
    preset(page, "Threshold 0.9 and 0.6")
    decoded(page)
    page.screenshot(path=tmp_path / "play.png", full_page=True)
    found = counters(page)
    forwards = [int(text) for text in found["Forwards"][:2]]
    assert forwards[0] > forwards[1] > 0
    assert found["Computed share of these forwards"][:2] == ["100 %", "100 %"]
    assert page.locator("#answer-boxes > .right").count() == 1
    assert page.locator("#answer-boxes > .wrong").count() == 1
    assert page.locator("#answer-boxes mark").count() > 2
    assert "The right result is 4." in page.inner_text("#verdict")
    by_positions, other = (page.locator("canvas.map").nth(side).evaluate(PICTURE) for side in (0, 1))
    assert by_positions != other
    page.click("[data-map=layers]")
    page.wait_for_timeout(100)
    assert page.locator("canvas.map").first.evaluate(PICTURE) != by_positions
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "saved.html")
    text = (tmp_path / "saved.html").read_text(encoding="utf-8")
    assert server.token not in text
    saved = opened((tmp_path / "saved.html").as_uri(), offline=True)
    saved.locator("#answers:visible").wait_for()
    assert counters(saved) == found
    assert saved.locator("#run").is_hidden()
    assert saved.input_value("[data-field='B.threshold']") == "0.6"
    saved.focus("#player")
    saved.keyboard.press("Home")
    saved.locator("#answers").wait_for(state="hidden")
    assert counters(saved)["Forwards"][:2] == ["0", "0"]
    saved.keyboard.press("ArrowRight")
    saved.keyboard.press("ArrowRight")
    saved.wait_for_timeout(100)
    assert counters(saved)["Forwards"][:2] == ["1", "1"]


def test_reuse_is_seen_in_the_counts_and_not_in_the_answer(server: PlayServer, opened: Opened) -> None:
    page = opened(server.address)
    preset(page, "Baseline and TRIM")
    decoded(page)
    found = counters(page)
    assert found["Forwards"][2] == "1.00"
    assert float(found["Layer rows computed"][2]) > 1.2
    assert page.locator("#answer-boxes mark").count() == 0
    assert "the same, letter for letter" in page.inner_text("#verdict")


def test_a_bad_setting_has_its_sentence_beside_the_field(server: PlayServer, opened: Opened) -> None:
    page = opened(server.address)
    page.fill("[data-field='B.policy']", "trim:keep=2")
    page.keyboard.press("Tab")
    box = page.locator("[data-error='B.policy']")
    box.wait_for()
    assert "keep is 2.0; it must lie in [0, 1]." in box.inner_text()
    assert page.get_attribute("[data-field='B.policy']", "aria-invalid") == "true"
    page.click("#run")
    page.locator("#status", has_text="Nothing was decoded").wait_for()
    assert page.locator("#race").is_hidden()
    page.fill("[data-field='B.policy']", "")
    page.fill("[data-field='A.threshold']", "0.8")
    page.keyboard.press("Tab")
    box.wait_for(state="hidden")


@pytest.mark.parametrize("how", ["stopping", "closing"])
def test_stopping_and_closing_the_page_end_the_decoding(server: PlayServer, opened: Opened, how: str) -> None:
    page = opened(server.address)
    preset(page, "One token a step and many")
    page.fill("#max_new_tokens", "3000")
    page.click("#run")
    page.locator("#counters tbody tr").first.wait_for()
    assert server.session.under_way == 1
    if how == "closing":
        page.close()
    else:
        page.click("#stop")
        page.locator("#status", has_text="Stopped.").wait_for()
        assert page.locator("#answers").is_hidden()
    wait_until(lambda: server.session.under_way == 0)


def test_a_page_of_another_origin_is_refused(server: PlayServer, opened: Opened, browser: "Browser") -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.address.replace("127.0.0.1", "localhost"))  # another origin, even with the token
    attempt = "address => fetch(address).then(() => 'read', error => error.name)"
    assert page.evaluate(attempt, server.address) == "TypeError"
    context.close()


def test_the_file_that_leads_to_the_page_does(server: PlayServer, browser: "Browser", tmp_path: Path) -> None:
    redirect = tmp_path / "play.html"
    redirect.write_text(PAGE.format(address=server.address))
    context = browser.new_context()
    page = context.new_page()
    page.goto(redirect.as_uri())
    page.locator("#run").wait_for()
    context.close()


def test_it_fits_a_phone_in_the_dark(server: PlayServer, opened: Opened, tmp_path: Path) -> None:
    page = opened(server.address, viewport={"width": 360, "height": 780}, color_scheme="dark")
    preset(page, "Baseline and output reuse")
    decoded(page)
    page.screenshot(path=tmp_path / "phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
