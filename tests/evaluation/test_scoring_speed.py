"""The throughput contract for scoring, on a clock that the tests wind themselves."""

from collections.abc import Sequence
from typing import Any

import pytest
from fake_clock import FakeClock

from checkpoints import small_model
from unmask.engine.score import ScoreRequest, Scores
from unmask.errors import UnmaskError
from unmask.evaluation.scoring_speed import ScoringSpeed, measure_scoring

BATCH = 4
QUESTIONS = ([1, 2, 3], list(range(1, 40)), [5, 6])
REQUESTS = [ScoreRequest(prefix, [7, choice]) for choice in (1, 2, 3, 4) for prefix in QUESTIONS]
"""Four choices of two tokens each for three questions, those of a question far apart."""


class TickingScorer:
    """Scores with a real engine; every call takes four seconds of the fake clock, in the warm-up a hundred."""

    def __init__(self, clock: FakeClock, drift: bool = False) -> None:
        self.engine = small_model().engine
        self.transformer = self.engine.transformer
        self.clock = clock
        self.drift = drift
        self.batches: list[list[ScoreRequest]] = []
        self.found: list[Scores] = []

    def score(self, requests: Sequence[ScoreRequest], *settings: Any) -> Scores:
        self.batches.append(list(requests))
        self.clock.work(4 if self.is_warm else 100)
        moved = [ScoreRequest([*one.prefix, len(self.batches)], one.target) for one in requests]
        self.found.append(self.engine.score(moved if self.drift else requests, *settings))
        return self.found[-1]

    @property
    def is_warm(self) -> bool:
        return len(self.batches) > len(QUESTIONS)


def timing_run(engine: Any, clock: FakeClock, **options: Any) -> ScoringSpeed:
    return measure_scoring(engine, REQUESTS, batch_size=BATCH, clock=clock, **options)


@pytest.fixture(scope="module")
def timed() -> tuple[TickingScorer, ScoringSpeed]:
    clock = FakeClock()
    engine = TickingScorer(clock)
    return engine, timing_run(engine, clock, repeats=3)


def test_the_warm_up_is_apart(timed: tuple[TickingScorer, ScoringSpeed]) -> None:
    engine, speed = timed
    assert (speed.batches, speed.repeats, len(engine.batches)) == (3, 3, 12)
    assert (speed.warm_up_seconds, speed.seconds) == (300, 4)


def test_rates_are_of_requests_and_of_scored_tokens(timed: tuple[TickingScorer, ScoringSpeed]) -> None:
    _, speed = timed
    assert (speed.requests, speed.tokens) == (12, 24)
    assert (speed.requests_per_second, speed.tokens_per_second) == (1, 2)
    assert (speed.interval.low, speed.interval.high) == (1, 1)
    assert (speed.tokens_interval.low, speed.tokens_interval.high) == (2, 2)
    assert speed.interval.coverage > 0.95
    assert speed.peak_memory["bytes"] > 0


def test_choices_of_a_question_are_in_one_batch_and_share_forwards(
    timed: tuple[TickingScorer, ScoringSpeed],
) -> None:
    engine, speed = timed
    assert [{tuple(one.prefix) for one in batch} for batch in engine.batches[:3]] == [
        {tuple(QUESTIONS[1])},
        {tuple(QUESTIONS[0])},
        {tuple(QUESTIONS[2])},
    ]
    ledgers = [ledger for found in engine.found[:3] for ledger in found.ledgers]
    assert len(ledgers) == len(QUESTIONS)
    assert speed.forwards == sum(sum(ledger.steps().values()) for ledger in ledgers)
    assert speed.rows == sum(sum(ledger.rows().values()) for ledger in ledgers)


def test_the_median_is_that_of_batches(timed: tuple[TickingScorer, ScoringSpeed]) -> None:
    """One slow batch of nine moves the interval's lower end, not the median."""
    clock = FakeClock()

    class OnceSlow(TickingScorer):
        def score(self, requests: Sequence[ScoreRequest], *settings: Any) -> Scores:
            found = super().score(requests, *settings)
            self.clock.work(60 if len(self.batches) == 7 else 0)
            return found

    speed = timing_run(OnceSlow(clock), clock, repeats=1)
    assert speed.requests_per_second == 1
    again = timing_run(OnceSlow(clock), clock, repeats=2)
    assert again.requests_per_second == 1
    assert (again.interval.low, again.interval.high) == (4 / 64, 1)


def test_timed_scores_must_be_those_of_the_warm_up() -> None:
    clock = FakeClock()
    with pytest.raises(UnmaskError, match="other scores than its warm-up"):
        timing_run(TickingScorer(clock, drift=True), clock)


@pytest.mark.parametrize("options", [{"repeats": 0}, {"batch_size": 0}, {"requests": []}])
def test_a_timing_run_needs_something_to_time(options: dict[str, Any]) -> None:
    clock = FakeClock()
    settings = {"requests": REQUESTS, "clock": clock, **options}
    with pytest.raises(UnmaskError, match="at least one"):
        measure_scoring(TickingScorer(clock), **settings)  # type: ignore[arg-type]


def test_a_policy_and_an_estimator_reach_the_scorer() -> None:
    clock = FakeClock()
    engine = TickingScorer(clock)
    timing_run(engine, clock, repeats=1, estimator="onepass")
    one_pass = [score.logprob for found in engine.found for score in found.scores]
    chain = TickingScorer(clock)
    timing_run(chain, clock, repeats=1)
    assert one_pass != [score.logprob for found in chain.found for score in found.scores]
