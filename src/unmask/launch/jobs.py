"""A job: one run folder and the command that fills it. Knows paths, not what is in them."""

from dataclasses import dataclass
from pathlib import Path

RESULT = "result.json"
LOG = "launch.log"


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be started somewhere."""

    run: str
    """The run's id."""
    folder: Path
    label: str
    """What people call it."""
    argv: tuple[str, ...]
    """The worker's command, its program as an absolute path."""
    log: Path | None = None
    """Where its output is appended to; without it `launch.log` in the run's folder."""

    @property
    def done(self) -> bool:
        """Whether the result is published."""
        return (self.folder / RESULT).exists()

    @property
    def log_file(self) -> Path:
        """Where its output is appended to."""
        return self.log or self.folder / LOG
