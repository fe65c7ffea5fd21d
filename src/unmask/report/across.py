"""The summary that spans experiments: one row for every task of every one."""

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.report.best import best_point
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
        best = best_point(task)
        yield Across(
            experiment=part.name,
            task=task.name,
            key=task.key,
            control=task.control.configuration if task.control else MISSING,
            accuracy=percent(task.control.value if task.control else None),
            best=best.configuration if best else MISSING,
            drop=percent(best.loss.value if best and best.loss else None),
            speedup=times(best.gain if best else None),
            verdict=_verdict(part, task),
            invalid=found.count("invalid"),
            warnings=found.count("warning"),
        )


def _verdict(part: ExperimentPart, task: TaskPart) -> str:
    judged = part.verdict
    return judged.answer if judged and judged.criteria.task == task.group.task else MISSING
