"""What else went on while a clock ran: load, other busy processes, and a GPU's clocks and throttling."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass

import psutil

from unmask.store.result import Conditions

BUSY_PERCENT = 20.0
"""A process that uses more of a core than this disturbs a measurement."""
GPU_FIELDS = (
    "clocks.sm",
    "clocks.max.sm",
    "clocks_throttle_reasons.active",
    "temperature.gpu",
    "utilization.gpu",
)
TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of the machine when the clock started."""

    load: float
    spent: dict[int, float]
    """CPU seconds of every other process so far."""
    started: float
    gpu: list[dict[str, str]]

    @classmethod
    def now(cls) -> "MachineState":
        """Take it down."""
        return cls(_load(), _cpu_seconds(), time.monotonic(), _gpus())

    def until_now(self) -> Conditions:
        """What can be said of the time between."""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        now = _cpu_seconds()
        used = {pid: 100 * (spent - self.spent.get(pid, 0.0)) / elapsed for pid, spent in now.items()}
        after = _gpus()
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
    """CPU seconds of every process but this one, as far as they may be seen."""
    found = {}
    for process in psutil.process_iter(["cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None and process.pid != os.getpid():
            found[process.pid] = times.user + times.system
    return found


def _gpus() -> list[dict[str, str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        dict(zip(GPU_FIELDS, (part.strip() for part in line.split(",")), strict=False))
        for line in told.splitlines()
    ]


def _throttled(readings: list[dict[str, str]]) -> bool | None:
    """Whether any reading names a reason for throttling; None where nothing can be read."""
    reasons = [reading.get("clocks_throttle_reasons.active", "") for reading in readings]
    told = [reason for reason in reasons if reason.startswith("0x")]
    # Bit 0 only says that the GPU is idle.
    return any(int(reason, 16) & ~1 for reason in told) if told else None
