"""What a guard is, and what it says. Knows tables; which guards there are stands in the package itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from unmask.analysis.table import Measured, Table, TaskResults
from unmask.spec.recipe import Gained

Figure = Gained | Literal["loss"]
EVERY_FIGURE: tuple[Figure, ...] = (*get_args(Gained), "loss")
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
    spoils: tuple[Figure, ...] = ()
    """Figures of these configurations that no verdict may use."""


Check = Callable[[Table], list[Finding]]


@dataclass(frozen=True, slots=True)
class Guard:
    """A check of a table, with its name and reasons."""

    name: str
    severity: Severity
    """The worst it can find."""
    title: str
    explanation: str
    advice: str
    check: Check
    spoils: tuple[Figure, ...]
    """What a finding spoils where it is invalid."""

    def finding(
        self,
        severity: Severity,
        sentence: str,
        place: TaskResults | Measured,
        concerned: Iterable[Measured] = (),
        advice: str | None = None,
        spoils: tuple[Figure, ...] | None = None,
    ) -> Finding:
        """A finding of this guard about the experiment and task of `place` and the configurations concerned."""
        experiment = place.experiment.name if isinstance(place, TaskResults) else place.experiment
        names = tuple(dict.fromkeys(result.configuration for result in concerned))
        useless = self.spoils if spoils is None else spoils
        return Finding(
            guard=self.name,
            severity=severity,
            sentence=sentence,
            advice=advice or self.advice,
            experiment=experiment,
            task=place.task,
            configurations=names,
            spoils=useless if severity == "invalid" else (),
        )


def guard(
    *,
    severity: Severity,
    title: str,
    explanation: str,
    advice: str,
    spoils: tuple[Figure, ...] = EVERY_FIGURE,
) -> Callable[[Check], Guard]:
    """Make a guard of the function below; its name is the function's, with hyphens."""

    def made(check: Check) -> Guard:
        return Guard(check.__name__.replace("_", "-"), severity, title, explanation, advice, check, spoils)

    return made
