"""Subtasks of a task, such as the subjects of MMLU: their accuracies under every configuration."""

from collections.abc import Mapping
from dataclasses import dataclass

from unmask.report.document import TaskPart


@dataclass(frozen=True, slots=True)
class Subject:
    """One subtask."""

    name: str
    """Without the part that all subtasks share."""
    rows: int | None
    values: Mapping[str, float]
    """By configuration."""


def subjects_of(task: TaskPart) -> list[Subject]:
    """All subtasks in the order of the control's accuracy, the best first."""
    values: dict[str, dict[str, float]] = {}
    rows: dict[str, int | None] = {}
    for line in task.lines:
        for name, part in line.entry.subtasks.items():
            if name == task.group.task or part.value is None:
                continue
            values.setdefault(name, {})[line.name] = float(part.value)
            rows.setdefault(name, part.rows)
    if len(values) < 2:
        return []
    first = task.control.configuration if task.control else None
    found = [
        Subject(name.removeprefix(f"{task.group.task}_"), rows[name], by_name)
        for name, by_name in values.items()
    ]
    return sorted(found, key=lambda one: (-one.values.get(first or "", 0.0), one.name))
