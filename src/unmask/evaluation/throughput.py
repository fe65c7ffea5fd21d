"""The throughput contract (docs/contracts.md): what is inside the clock, what is counted, what is apart.

Inside the clock is the decoding alone. Counted are accepted tokens: no prompt, no padding, a stop token
once. Answers that come from a cache never reach this file, so they cannot enter a speed.
"""

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch

from unmask.cost.median import Interval, median_interval
from unmask.engine.engine import Engine
from unmask.engine.events import Finished, StepEvent
from unmask.engine.prompt import Request
from unmask.engine.score import Scores
from unmask.engine.step_plan import Kind
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec

Clock = Callable[[], float]
Events = Iterator[StepEvent | Finished]


@dataclass(slots=True)
class Decoding:
    """Decoding that the clock saw."""

    requests: int = 0
    tokens: int = 0
    """Accepted tokens."""
    forwards: int = 0
    """Summed over requests, as if each ran alone."""
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Prefill and denoising together."""
        return self.prefill_seconds + self.decode_seconds

    def summary(self) -> dict[str, Any]:
        """Counts, times and rates."""
        return {
            **asdict(self),
            "tokens_per_second": _rate(self.tokens, self.seconds),
            "tokens_per_decode_second": _rate(self.tokens, self.decode_seconds),
            "tokens_per_forward": _rate(self.tokens, self.forwards),
        }


@dataclass(slots=True)
class Scoring:
    """Scoring that the clock saw; its rates are never mixed with those of decoding."""

    requests: int = 0
    tokens: int = 0
    """Target tokens."""
    forwards: int = 0
    rows: int = 0
    """Rows fed in these forwards, before anything was skipped."""
    seconds: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Counts, time and rates."""
        return {
            **asdict(self),
            "requests_per_second": _rate(self.requests, self.seconds),
            "tokens_per_second": _rate(self.tokens, self.seconds),
        }


@dataclass(slots=True)
class Meter:
    """Keeps the times of one run apart."""

    clock: Clock = time.perf_counter
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds outside the clock: loading, tokenising, checking answers, warming up."""
    decoding: Decoding = field(default_factory=Decoding)
    scoring: Scoring = field(default_factory=Scoring)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time something that is no decoding."""
        start = self.clock()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + self.clock() - start

    def timed(self, events: Events) -> Events:
        """Pass events on; only the time until each one comes is counted, not what is done with it."""
        total = self.decoding
        while True:
            start = self.clock()
            event = next(events, None)
            spent = self.clock() - start
            if isinstance(event, StepEvent) and event.kind is Kind.PREFILL:
                total.prefill_seconds += spent
            else:
                total.decode_seconds += spent
            if event is None:
                return
            if isinstance(event, Finished):
                total.requests += 1
                total.tokens += len(event.generation.ids)
                total.forwards += sum(event.generation.ledger.steps().values())
            yield event

    def scored(self, score: Callable[[], Scores], tokens: int) -> Scores:
        """Time one call of the scorer."""
        start = self.clock()
        found = score()
        total = self.scoring
        total.seconds += self.clock() - start
        total.requests += len(found.scores)
        total.tokens += tokens
        total.forwards += sum(sum(ledger.steps().values()) for ledger in found.ledgers)
        total.rows += sum(sum(ledger.rows().values()) for ledger in found.ledgers)
        return found

    def summary(self) -> dict[str, Any]:
        """Everything, with what was not done left out."""
        found: dict[str, Any] = {"seconds_outside_the_clock": dict(self.phases)}
        if self.decoding.requests:
            found["decoding"] = self.decoding.summary()
        if self.scoring.requests:
            found["scoring"] = self.scoring.summary()
        return found


@dataclass(frozen=True, slots=True)
class Speed:
    """A timing run: every batch decoded once to warm up, then `repeats` times on the clock."""

    batches: int
    repeats: int
    tokens_per_second: float
    """Median over batches and repeats."""
    interval: Interval
    prefill_seconds: float
    """Median of a batch."""
    decode_seconds: float
    """Median of a batch."""
    tokens_per_forward: float
    warm_up_seconds: float
    peak_memory: dict[str, Any]


def measure(
    engine: Engine,
    requests: Sequence[Request],
    decode: DecodeSpec,
    policy: Any = None,
    batch_size: int = 16,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
) -> Speed:
    """Measure a speed by the contract, or refuse when a timed run gives other ids than its warm-up."""
    if not requests or repeats < 1 or batch_size < 1:
        raise UnmaskError("A timing run needs at least one request, one repeat and a batch of one.")
    batches = [list(requests[i : i + batch_size]) for i in range(0, len(requests), batch_size)]
    warm = Meter(clock)
    with warm.phase("warm_up"):
        expected = [_ids(engine.stream(batch, decode, policy, batch_size)) for batch in batches]
    reset_peak_memory(engine)
    runs: list[Decoding] = []
    for _ in range(repeats):
        for batch, ids in zip(batches, expected, strict=True):
            meter = Meter(clock)
            if _ids(meter.timed(engine.stream(batch, decode, policy, batch_size))) != ids:
                raise UnmaskError(
                    "A timed run gave other tokens than its warm-up, so its speed means nothing."
                )
            runs.append(meter.decoding)
    rates = [_rate(run.tokens, run.seconds) or 0.0 for run in runs]
    return Speed(
        batches=len(batches),
        repeats=repeats,
        tokens_per_second=median(rates),
        interval=median_interval(rates),
        prefill_seconds=median(run.prefill_seconds for run in runs),
        decode_seconds=median(run.decode_seconds for run in runs),
        tokens_per_forward=sum(run.tokens for run in runs) / sum(run.forwards for run in runs),
        warm_up_seconds=warm.phases["warm_up"],
        peak_memory=peak_memory(engine),
    )


def _ids(events: Iterable[StepEvent | Finished]) -> dict[int, list[int]]:
    return {event.request: event.generation.ids for event in events if isinstance(event, Finished)}


def reset_peak_memory(engine: Engine) -> None:
    """Forget earlier peaks where the device allows it."""
    if engine.transformer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(engine.transformer.device)


def peak_memory(engine: Engine) -> dict[str, Any]:
    """The most memory in use so far: of the GPU's allocator, or of this process."""
    device = engine.transformer.device
    if device.type == "cuda":
        return {"bytes": torch.cuda.max_memory_allocated(device), "of": str(device)}
    return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "of": "process"}


def _rate(count: float, per: float) -> float | None:
    return count / per if per else None
