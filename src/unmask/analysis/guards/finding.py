"""What a guard says and what is said about it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from unmask.analysis.records import Entry, Group, Table, Timing

Severity = Literal["info", "warning", "invalid"]
ORDER: tuple[Severity, ...] = ("invalid", "warning", "info")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader of the table must know."""

    guard: str
    severity: Severity
    """invalid: the figures do not show what they seem to show. warning: read them with care. info: good to know."""
    sentence: str
    """What was found, with its figures."""
    advice: str
    """What to do about it."""
    experiment: str
    task: str | None
    configurations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class About:
    """A guard's name and reasons."""

    id: str
    severity: Severity
    """The worst it can find."""
    title: str
    explanation: str
    advice: str

    def finding(
        self,
        severity: Severity,
        sentence: str,
        place: Group | Timing | Entry,
        concerned: Iterable[Entry | Timing] = (),
        advice: str | None = None,
    ) -> Finding:
        """A finding of this guard."""
        experiment = place.experiment.name if isinstance(place, Group) else place.experiment
        names = tuple(dict.fromkeys(one.configuration for one in concerned))
        return Finding(self.id, severity, sentence, advice or self.advice, experiment, place.task, names)


@dataclass(frozen=True, slots=True)
class Guard:
    """A check and what is said about it."""

    about: About
    check: Callable[[Table], list[Finding]]
