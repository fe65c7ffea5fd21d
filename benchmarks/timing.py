"""Times things beside each other: interleaved, repeated, and compared pair by pair.

Knows clocks and order statistics, nothing of models. On a shared machine neighbours slow everything in
turns; what is run in the same round is slowed alike, so only ratios within a round are compared. The CPU
clock is kept beside the wall clock: it does not count the time in which another process had the core.
"""

import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median

import torch

Timed = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """Seconds of one run on both clocks."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios with a distribution-free interval of it."""

    median: float
    low: float
    high: float
    coverage: float
    pairs: int

    @classmethod
    def of(cls, numerators: list[float], denominators: list[float]) -> "Ratio":
        """Divide pair by pair; the interval is the closest two order statistics that cover 95 %, else the extremes."""
        ratios = sorted(up / down for up, down in zip(numerators, denominators, strict=True))
        pairs = len(ratios)
        rank = max((k for k in range(pairs // 2) if _coverage(pairs, k) >= 0.95), default=0)
        return cls(median(ratios), ratios[rank], ratios[pairs - 1 - rank], _coverage(pairs, rank), pairs)

    def __str__(self) -> str:
        return (
            f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}] "
            f"({self.coverage:.0%} interval of the median, {self.pairs} pairs)"
        )


def _coverage(pairs: int, rank: int) -> float:
    """Probability that the true median lies between the order statistics `rank` from either end."""
    return 1.0 - 2.0 * sum(comb(pairs, k) for k in range(rank + 1)) / 2.0**pairs


def clock(timed: Timed) -> Sample:
    """Run once on both clocks."""
    wall, cpu = time.perf_counter(), time.process_time()
    timed()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


def interleave(contenders: Mapping[str, Callable[[], Sample]], repeats: int) -> dict[str, list[Sample]]:
    """Let each contender run once a round, in turning order."""
    names = list(contenders)
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            samples[name].append(contenders[name]())
    return samples


def ratios(samples: Mapping[str, list[Sample]], up: str, down: str) -> dict[str, Ratio]:
    """Compare two contenders on both clocks."""
    return {
        "wall": Ratio.of([sample.wall for sample in samples[up]], [sample.wall for sample in samples[down]]),
        "cpu": Ratio.of([sample.cpu for sample in samples[up]], [sample.cpu for sample in samples[down]]),
    }


def fair_clock(threads: int) -> str:
    """The clock to compare on: the CPU clock forgives neighbours, but adds up threads that wait."""
    return "cpu" if threads == 1 else "wall"


def machine() -> dict[str, str | int]:
    """What a reader of a figure must know about where it was taken."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit that is checked out, marked where files other than the benchmarks' own history differ from it."""
    others = ("--", ":(top)", ":(top,exclude)benchmarks/history.jsonl")
    try:
        commit = _git("describe", "--always").stdout.strip()
        dirty = _git("diff", "--quiet", "HEAD", *others).returncode == 1
    except OSError:
        return "unknown"
    return (commit or "unknown") + "-dirty" * dirty


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 (a pseudo file of Linux only)
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
