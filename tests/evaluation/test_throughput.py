"""The throughput contract on a clock that the tests wind themselves."""

from collections.abc import Iterator

import pytest

from unmask.cost import Ledger, Work
from unmask.engine.events import Finished, Generation, StepEvent
from unmask.engine.score import Score, Scores
from unmask.engine.step_plan import FULL, Kind
from unmask.evaluation.throughput import Meter


class FakeClock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def ledger(*kinds: str) -> Ledger:
    found = Ledger(2)
    for kind in kinds:
        found.add(Work(kind, rows=32, pairs=32 * 32, reads=1))
    return found


def decoding(clock: FakeClock) -> Iterator[StepEvent | Finished]:
    """A prefill of 3 seconds, a step of 2, and an answer of four tokens, stop token included."""
    clock.work(3)
    yield StepEvent(0, Kind.PREFILL, FULL, 0, (), (), ())
    clock.work(2)
    yield StepEvent(0, Kind.BLOCK, FULL, 1, (32, 33), (5, 6), (0.9, 0.9))
    work = ledger("prefill", "block")
    yield Finished(0, Generation([5, 6, 7, 1], "abc", "stop", work, 1))
    clock.work(1)


def test_only_the_wait_for_events_is_inside_the_clock() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    for _ in meter.timed(decoding(clock)):
        clock.work(50)  # drawing, checking answers, writing caches
    found = meter.decoding
    assert (found.prefill_seconds, found.decode_seconds) == (3, 3)
    assert (found.requests, found.tokens, found.forwards) == (1, 4, 2)
    summary = meter.summary()["decoding"]
    assert summary["tokens_per_second"] == 4 / 6
    assert summary["tokens_per_decode_second"] == 4 / 3
    assert summary["tokens_per_forward"] == 2


def test_other_phases_are_told_apart_even_when_they_fail() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    with meter.phase("loading"):
        clock.work(7)

    def fail() -> None:
        clock.work(2)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"), meter.phase("tokenising"):
        fail()
    assert meter.summary() == {"seconds_outside_the_clock": {"loading": 7, "tokenising": 2}}


def test_scoring_has_figures_of_its_own() -> None:
    clock = FakeClock()
    meter = Meter(clock)

    def score() -> Scores:
        clock.work(4)
        found = [Score(-1.0, True, 0), Score(-2.0, False, 0)]
        return Scores(found, [ledger("prefill", "block", "sub")], None)

    meter.scored(score, tokens=6)
    summary = meter.summary()["scoring"]
    assert summary == {
        "requests": 2,
        "tokens": 6,
        "forwards": 3,
        "rows": 96,
        "seconds": 4,
        "requests_per_second": 0.5,
        "tokens_per_second": 1.5,
    }
    assert "decoding" not in meter.summary()
