"""The live view, frame by frame."""

from io import StringIO

import pytest
from rich.console import Console

from unmask.cli.live import LiveView, printable
from unmask.engine.events import StepEvent
from unmask.engine.step_plan import FULL, Kind

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROMPT, BLOCK, BUDGET = 3, 8, 10


def letters(ids: list[int]) -> str:
    return "".join(LETTERS[token] for token in ids)


def event(step: int, *columns: int) -> StepEvent:
    return StepEvent(0, Kind.SUB, FULL, step, columns, tuple(columns), (1.0,) * len(columns))


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> LiveView:
    """A view that draws only when told to."""
    monkeypatch.setattr("unmask.cli.live.FRAME_SECONDS", 1e9)
    console = Console(file=StringIO(), force_terminal=True, width=40, height=6)
    return LiveView(console, letters, PROMPT, BLOCK, BUDGET)


def test_positions_appear_where_they_are(view: LiveView):
    assert view.text().plain == "░░░░░"
    view.step(event(0, 5))
    assert view.text().plain == "░░f░░"
    view.step(event(1, 3, 4))
    assert view.text().plain == "def░░"


def test_the_next_block_opens_and_ends_with_the_budget(view: LiveView):
    view.step(event(0, 3, 4, 5, 6, 7))
    assert view.text().plain == "defgh" + "░" * 5


def test_new_positions_stand_out_until_drawn(view: LiveView):
    with view:
        view.step(event(0, 3, 6))
        styles = {view.text().plain[span.start : span.end]: span.style for span in view.text().spans}
        assert styles == {"d": "bold green", "░░": "dim", "g": "bold green", "░": "dim"}
        view._draw()
        styles = {view.text().plain[span.start : span.end]: span.style for span in view.text().spans}
        assert styles == {"░░": "dim", "g": "cyan", "░": "dim"}


def test_the_footer_counts(view: LiveView):
    view.step(event(0, 3, 4))
    view.step(event(1, 5))
    assert view.footer == "step 2 (sub) | 3 tokens | 1.50 tokens per forward"


def test_only_the_end_of_a_long_text_is_drawn(monkeypatch: pytest.MonkeyPatch):
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=10, height=5)
    with LiveView(console, lambda ids: "".join(f"{token:>9}\n" for token in ids), 0, 32, 32) as view:
        output.truncate(0)
        view.step(event(0, *range(20)))
        view._draw()
    lines = output.getvalue()
    assert "       19" in lines
    assert "        2\n" not in lines


def test_characters_that_steer_a_terminal_are_replaced():
    assert (
        printable("a\x1b[31m\tb\r\n\x07é")
        == "a\N{REPLACEMENT CHARACTER}[31m\tb\N{REPLACEMENT CHARACTER}\n\N{REPLACEMENT CHARACTER}é"
    )
