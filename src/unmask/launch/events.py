"""What a pool tells while it works. Plain data."""

from dataclasses import dataclass

from unmask.launch.jobs import Job
from unmask.launch.slots import Slot


@dataclass(frozen=True, slots=True)
class Started:
    """A job has got a process."""

    job: Job
    slot: Slot
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A job's process has ended, or could not be started."""

    job: Job
    slot: Slot
    code: int | None
    """Its exit code, negative for a signal; None if it was never started or cannot be killed."""
    seconds: float
    done: bool
    """Whether the result is published."""
    error: str | None = None
    """Why it could not be started."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A job was found done when its turn came."""

    job: Job


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment has passed."""

    running: tuple[Job, ...]
    waiting: int


Event = Started | Ended | Skipped | Tick
