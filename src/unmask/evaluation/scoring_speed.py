"""A speed of scoring by the throughput contract (docs/contracts.md), beside `throughput.measure` for decoding.

Knows the scorer and the clock. A batch holds whole questions, so that choices share forwards here as they do
in an evaluation; what is compared with the warm-up are the scores themselves.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from unmask.cost.median import Interval, median_interval
from unmask.engine.engine import DEFAULT_BATCH, Engine
from unmask.engine.score import EstimatorName, Order, Score, ScoreRequest, Scores
from unmask.errors import UnmaskError
from unmask.evaluation.scoring import parts, target_tokens
from unmask.evaluation.throughput import (
    Clock,
    Meter,
    Scoring,
    peak_memory,
    reset_peak_memory,
)
from unmask.spec import DecodeSpec


@dataclass(frozen=True, slots=True)
class ScoringSpeed:
    """A timing run: every batch scored once to warm up, then `repeats` times on the clock."""

    batches: int
    repeats: int
    requests: int
    """Of one pass over all batches, as are the next three."""
    tokens: int
    """Target tokens."""
    forwards: int
    """Those that choices of a question share count once."""
    rows: int
    """Rows fed in these forwards, before anything was skipped."""
    requests_per_second: float
    """Median over batches and repeats."""
    interval: Interval
    """Of the requests per second."""
    tokens_per_second: float
    """Scored tokens; median over batches and repeats."""
    tokens_interval: Interval
    seconds: float
    """Median of a batch."""
    warm_up_seconds: float
    peak_memory: dict[str, Any]


def measure_scoring(
    engine: Engine,
    requests: Sequence[ScoreRequest],
    decode: DecodeSpec | None = None,
    policy: Any = None,
    estimator: EstimatorName = "chain",
    order: Order = "confidence",
    batch_size: int = DEFAULT_BATCH,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
) -> ScoringSpeed:
    """Measure a speed by the contract, or refuse when a timed run gives other scores than its warm-up."""
    if not requests or repeats < 1 or batch_size < 1:
        raise UnmaskError("A timing run needs at least one request, one repeat and a batch of one.")
    batches = [[requests[place] for place in places] for places in parts(requests, batch_size)]

    def score(batch: list[ScoreRequest]) -> Scores:
        return engine.score(batch, estimator, order, decode, policy, batch_size)

    warm = Meter(clock)
    with warm.phase("warm_up"):
        expected = [_values(score(batch).scores) for batch in batches]
    reset_peak_memory(engine)
    runs: list[Scoring] = []
    for _ in range(repeats):
        for batch, values in zip(batches, expected, strict=True):
            meter = Meter(clock)
            found = meter.scored(lambda batch=batch: score(batch), target_tokens(batch))  # type: ignore[misc]
            if _values(found.scores) != values:
                raise UnmaskError(
                    "A timed run gave other scores than its warm-up, so its speed means nothing."
                )
            runs.append(meter.scoring)
    return _speed(engine, runs, len(batches), repeats, warm.phases["warm_up"])


def _speed(
    engine: Engine, runs: list[Scoring], batches: int, repeats: int, warm_up_seconds: float
) -> ScoringSpeed:
    once = runs[:batches]
    requests, tokens = (
        [getattr(run, counted) / run.seconds if run.seconds else 0.0 for run in runs]
        for counted in ("requests", "tokens")
    )
    return ScoringSpeed(
        batches=batches,
        repeats=repeats,
        requests=sum(run.requests for run in once),
        tokens=sum(run.tokens for run in once),
        forwards=sum(run.forwards for run in once),
        rows=sum(run.rows for run in once),
        requests_per_second=median(requests),
        interval=median_interval(requests),
        tokens_per_second=median(tokens),
        tokens_interval=median_interval(tokens),
        seconds=median(run.seconds for run in runs),
        warm_up_seconds=warm_up_seconds,
        peak_memory=peak_memory(engine),
    )


def _values(scores: Sequence[Score]) -> list[tuple[float, bool]]:
    return [(score.logprob, score.is_greedy) for score in scores]
