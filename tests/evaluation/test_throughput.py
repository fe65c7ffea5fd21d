"""The throughput contract on a clock that the tests wind themselves."""

from collections.abc import Iterator
from typing import Any

import pytest
from fake_clock import FakeClock

from checkpoints import small_model
from unmask.cost import Ledger, Work
from unmask.engine.events import Finished, Generation, StepEvent
from unmask.engine.prompt import Request
from unmask.engine.score import Score, Scores
from unmask.engine.step_plan import FULL, Kind
from unmask.errors import UnmaskError
from unmask.evaluation.throughput import Meter, measure, median_interval
from unmask.spec import DecodeSpec


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


class TickingEngine:
    """Decodes with a real engine while every event takes a second of the fake clock; warm-up takes ten."""

    def __init__(self, clock: FakeClock, drift: bool = False) -> None:
        self.engine = small_model().engine
        self.transformer = self.engine.transformer
        self.clock = clock
        self.calls = 0
        self.drift = drift

    def stream(self, requests: Any, *settings: Any) -> Iterator[StepEvent | Finished]:
        self.calls += 1
        pace = 10 if self.calls <= 2 else 1
        shifted = [Request([*request.prompt, self.calls]) for request in requests]
        for event in self.engine.stream(shifted if self.drift else requests, *settings):
            self.clock.work(pace)
            yield event


def timing_run(engine: Any, clock: FakeClock, **options: Any) -> Any:
    requests = [Request([number, 2, 3]) for number in range(1, 4)]
    return measure(engine, requests, DecodeSpec(max_new_tokens=8), batch_size=2, clock=clock, **options)


def test_a_timing_run_leaves_its_warm_up_out() -> None:
    clock = FakeClock()
    engine = TickingEngine(clock)
    speed = timing_run(engine, clock, repeats=3)
    assert (speed.batches, speed.repeats, engine.calls) == (2, 3, 8)
    assert speed.warm_up_seconds > speed.decode_seconds * 5
    assert speed.interval.low <= speed.tokens_per_second <= speed.interval.high
    assert 0 < speed.tokens_per_second < 8
    assert speed.tokens_per_forward > 0
    assert speed.peak_memory["bytes"] > 0


def test_timed_ids_must_be_those_of_the_warm_up() -> None:
    clock = FakeClock()
    with pytest.raises(UnmaskError, match="other tokens than its warm-up"):
        timing_run(TickingEngine(clock, drift=True), clock)


@pytest.mark.parametrize("options", [{"repeats": 0}])
def test_a_timing_run_needs_something_to_time(options: dict[str, Any]) -> None:
    clock = FakeClock()
    with pytest.raises(UnmaskError, match="at least one"):
        timing_run(TickingEngine(clock), clock, **options)


def test_the_interval_of_a_median_by_order_statistics() -> None:
    ten = median_interval([float(value) for value in range(10, 0, -1)])
    assert (ten.low, ten.high) == (2, 9)
    assert ten.coverage == pytest.approx(1 - 2 * (1 + 10) / 1024)
    three = median_interval([3.0, 1.0, 2.0])
    assert (three.low, three.high, three.coverage) == (1, 3, 0.75)
    assert median_interval([5.0]).coverage == 0
