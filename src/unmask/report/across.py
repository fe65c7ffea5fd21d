"""The summary that spans experiments: one row for every task of every one."""

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.analysis.frontier import best_under
from unmask.report.document import Document, ExperimentPart, TaskPart
from unmask.report.numbers import MISSING, percent, times


@dataclass(frozen=True, slots=True)
class Across:
    """One task of one experiment."""

    experiment: str
    task: str
    key: str
    """Where the page has more."""
    control: str
    accuracy: str
    best: str
    """The fastest configuration that surely stays within the budget of accuracy."""
    drop: str
    speedup: str
    verdict: str
    invalid: int
    warnings: int


def across(document: Document) -> list[Across]:
    """All rows, in the order of the experiments."""
    return [row for part in document.parts for row in _rows(part)]


def _rows(part: ExperimentPart) -> Iterator[Across]:
    for task in part.tasks:
        found = [one.severity for one in part.findings if one.task in (None, task.group.task)]
        best = best_under(list(task.by_speed), task.budget) if len(task.by_speed) > 1 else None
        # Only a configuration that loses something against the control has a loss: the control itself is no find.
        other = best if best is not None and best.loss is not None else None
        yield Across(
            experiment=part.name,
            task=task.name,
            key=task.key,
            control=task.control.configuration if task.control else MISSING,
            accuracy=percent(task.control.value if task.control else None),
            best=other.configuration if other else MISSING,
            drop=percent(other.loss.value if other and other.loss else None),
            speedup=times(other.gain if other else None),
            verdict=_verdict(part, task),
            invalid=found.count("invalid"),
            warnings=found.count("warning"),
        )


def _verdict(part: ExperimentPart, task: TaskPart) -> str:
    judged = part.verdict
    return judged.answer if judged and judged.criteria.task == task.group.task else MISSING
