"""The throughput contract (docs/contracts.md): what is inside the clock, what is counted, what is apart.

Inside the clock is the decoding alone. A device that works on while the program goes on is waited for wherever the
clock is read, and nowhere else. Counted are accepted tokens: no prompt, no padding, a stop token once. Answers that
come from a cache never reach this file, so they cannot enter a speed. Beside the clock it reads peak memory and what
else the machine did meanwhile. It does not know tasks or configurations.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from unmask.engine.engine import Engine
from unmask.engine.events import Finished, StepEvent
from unmask.engine.score import Scores
from unmask.engine.step_plan import Kind
from unmask.store.environment import query_gpus
from unmask.store.result import Conditions, PeakMemory

Clock = Callable[[], float]
Events = Iterator[StepEvent | Finished]
BUSY_PERCENT = 20.0
"""A process that uses more of a core than this disturbs a measurement."""
GPU_FIELDS = (
    "clocks.sm",
    "clocks.max.sm",
    "clocks_throttle_reasons.active",
    "temperature.gpu",
    "utilization.gpu",
)


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
    """Rows of these forwards, before a policy skipped any."""
    seconds: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Counts, time and rates."""
        return {
            **asdict(self),
            "requests_per_second": _rate(self.requests, self.seconds),
            "tokens_per_second": _rate(self.tokens, self.seconds),
        }


def _no_wait() -> None:
    """A processor is done with a product before the program goes on."""


def waiting_for(device: torch.device) -> Callable[[], None]:
    """What waits until a device has done all its work."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return torch.mps.synchronize if device.type == "mps" else _no_wait


@dataclass(slots=True)
class Meter:
    """Keeps the times of one run apart."""

    clock: Clock = time.perf_counter
    wait: Callable[[], None] = _no_wait
    """Returns when the device has done what it was given."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds outside the clock: loading, tokenising, checking answers, warming up."""
    decoding: Decoding = field(default_factory=Decoding)
    scoring: Scoring = field(default_factory=Scoring)

    def now(self) -> float:
        """The time at which the device has done what it was given so far."""
        self.wait()
        return self.clock()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time something outside the clock."""
        start = self.now()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + self.now() - start

    def timed(self, events: Events) -> Events:
        """Pass events on. The clock runs while the next event is awaited, not while the caller works on it."""
        total = self.decoding
        while True:
            start = self.now()
            event = next(events, None)
            spent = self.now() - start
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
        start = self.now()
        answer = score()
        total = self.scoring
        total.seconds += self.now() - start
        total.requests += len(answer.scores)
        total.tokens += tokens
        total.forwards += sum(sum(ledger.steps().values()) for ledger in answer.ledgers)
        total.rows += sum(sum(ledger.rows().values()) for ledger in answer.ledgers)
        return answer

    def summary(self) -> dict[str, Any]:
        """All counts, times and rates. A path that no request took is left out."""
        parts: dict[str, Any] = {"seconds_outside_the_clock": dict(self.phases)}
        if self.decoding.requests:
            parts["decoding"] = self.decoding.summary()
        if self.scoring.requests:
            parts["scoring"] = self.scoring.summary()
        return parts


def reset_peak_memory(engine: Engine) -> None:
    """Forget earlier peaks where the device allows it."""
    if engine.transformer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(engine.transformer.device)
    with suppress(OSError):  # Linux: the largest resident size begins anew
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(engine: Engine) -> PeakMemory:
    """The most memory in use so far: of the GPU's allocator, or of this process."""
    device = engine.transformer.device
    if device.type == "cuda":
        return PeakMemory(bytes=torch.cuda.max_memory_allocated(device), of=str(device))
    return PeakMemory(bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, of="process")


def _rate(count: float, per: float) -> float | None:
    return count / per if per else None


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of the machine when a clock is started."""

    load: float
    spent: dict[int, float]
    """CPU seconds of every other process so far."""
    started: float
    gpu: list[dict[str, str]]

    @classmethod
    def now(cls) -> "MachineState":
        """Read it."""
        return cls(_load(), _cpu_seconds(), time.monotonic(), query_gpus(*GPU_FIELDS))

    def until_now(self) -> Conditions:
        """What else the machine did since then: load, other busy processes, a GPU's clocks."""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        now = _cpu_seconds()
        used = {pid: 100 * (spent - self.spent.get(pid, 0.0)) / elapsed for pid, spent in now.items()}
        after = query_gpus(*GPU_FIELDS)
        return Conditions(
            load_before=self.load,
            load_after=_load(),
            other_processes=sum(share > BUSY_PERCENT for share in used.values()),
            other_cpu_percent=round(sum(used.values()), 1),
            clocks={"before": self.gpu, "after": after},
            throttled=_throttled([*self.gpu, *after]),
        )


def _load() -> float:
    return os.getloadavg()[0]


def _cpu_seconds() -> dict[int, float]:
    """CPU seconds of every process but this one, as far as this user may see them."""
    seconds = {}
    for process in psutil.process_iter(["cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None and process.pid != os.getpid():
            seconds[process.pid] = times.user + times.system
    return seconds


def _throttled(readings: list[dict[str, str]]) -> bool | None:
    """Whether any reading names a reason for throttling; None where nothing can be read."""
    reasons = [reading["clocks_throttle_reasons.active"] for reading in readings]
    masks = [int(reason, 16) for reason in reasons if reason.startswith("0x")]
    # Bit 0 only says that the GPU is idle.
    return any(mask & ~1 for mask in masks) if masks else None
