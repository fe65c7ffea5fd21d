"""Numbers and drawings: what they look like whatever they are given."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from unmask.analysis.words import MINUS, MISSING, duration, in_percent, probability, rate, span
from unmask.report.document import AttemptSpan
from unmask.report.figures import _lanes, timeline
from unmask.report.svg import LABEL_HEIGHT, Label, PlotFrame, Scale, labels, tag, ticks

SMALL = st.floats(-1, 1)


@given(SMALL)
def test_percent_has_one_minus_and_none_before_zero(share: float) -> None:
    text = in_percent(share)
    assert "-" not in text
    assert text.startswith(MINUS) == (round(share * 100, 1) < 0)


def test_what_is_not_known_has_one_spelling() -> None:
    assert {in_percent(None), rate(None), probability(None), duration(None)} == {MISSING}


def test_spans_and_times() -> None:
    assert span(-0.024, 0.101) == f"{MINUS}2.4 to 10.1"
    assert (duration(3.21), duration(80), duration(600), duration(19189.89)) == (
        "3.2 s",
        "80 s",
        "10.0 min",
        "5.33 h",
    )
    assert (probability(0.0004), probability(0.0321)) == ("< 0.001", "0.032")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(low: float, width: float) -> None:
    found = ticks(low, low + width)
    room = 1e-6 * max(1.0, abs(low), width)
    assert found == sorted(found)
    assert 1 <= len(found) <= 12
    assert all(low - room <= value <= low + width + room for value in found)


def test_elements_escape_what_they_are_given() -> None:
    made = tag("text", "<script>", data_tip='"><script>alert(1)</script>')
    assert "<script>" not in made
    assert tag("g", made) == Markup(f"<g>{made}</g>")


@given(st.lists(st.tuples(st.floats(60, 400), st.floats(40, 260)), min_size=1, max_size=12))
def test_labels_do_not_cover_each_other(places: list[tuple[float, float]]) -> None:
    frame = PlotFrame(Scale(0, 1, 52, 440), Scale(0, 1, 272, 30))
    drawn = list(labels([Label(x, y, f"k{n}") for n, (x, y) in enumerate(places)], frame))
    boxes = []
    for one in drawn:
        found = re.match(r'<text x="([\d.]+)" y="([\d.]+)"', one)
        if found:
            boxes.append((float(found[1]), float(found[2])))
    assert len(boxes) == len(places)
    for number, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[:number]:
            # Labels are two or three letters, twelve to nineteen units wide.
            assert abs(x - other_x) > 12 or abs(y - other_y) >= LABEL_HEIGHT - 0.05


SPANS = st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e4)), min_size=1, max_size=20)


@given(SPANS)
def test_attempts_of_a_lane_do_not_overlap(spans: list[tuple[float, float]]) -> None:
    attempts = [
        AttemptSpan(host="a", label="k1", task="t", kind="accuracy", state="done", start=s, stop=s + d)
        for s, d in spans
    ]
    lanes = _lanes(attempts)
    assert sum(map(len, lanes)) == len(attempts)
    for lane in lanes:
        for before, after in pairwise(lane):
            assert before.stop <= after.start
    assert str(timeline(attempts)).count('class="attempt') == len(attempts)
