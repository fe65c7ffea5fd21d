"""Subjects of a task: a bar for the control, a mark for every other configuration."""

from collections.abc import Sequence

from markupsafe import Markup

from unmask.report.document import TaskPart
from unmask.report.figures.svg import WIDTH, Scale, line, picture, tag, text, tip
from unmask.report.numbers import percent
from unmask.report.subjects import Subject

ROW = 19
LABEL = 168
LETTERS = 26


def subject_bars(task: TaskPart, subjects: Sequence[Subject]) -> Markup | None:
    """One row a subject; None where there are none."""
    if not subjects:
        return None
    scale = Scale(0, 1, LABEL, WIDTH - 14)
    bottom = 8 + ROW * len(subjects)
    control = task.control.configuration if task.control else task.lines[0].name
    others = [one.name for one in task.lines if one.name != control and not one.same_as_control]
    parts: list[Markup] = []
    for value in scale.ticks(4):
        parts.append(line(scale(value), 4, scale(value), bottom, "grid"))
        parts.append(text(scale(value), bottom + 15, percent(value, 0), "tick", "middle"))
    for number, subject in enumerate(subjects):
        parts.append(_row(subject, 8 + ROW * number, scale, control, others))
    parts.append(text((LABEL + WIDTH) / 2, bottom + 32, "accuracy (%)", "axis-name", "middle"))
    return picture(WIDTH, bottom + 40, f"Accuracy by subject on {task.name}", parts, "subjects")


def _row(subject: Subject, top: float, scale: Scale, control: str, others: Sequence[str]) -> Markup:
    name = subject.name.replace("_", " ")
    shown = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    told = [f"{name}" + (f", {subject.rows:,} rows" if subject.rows else "")]
    told += [
        f"{one}: {percent(subject.values[one])} %" for one in (control, *others) if one in subject.values
    ]
    parts = [text(LABEL - 8, top + 12, shown, "tick", "end")]
    value = subject.values.get(control)
    if value is not None:
        width = max(0.0, scale(value) - scale(0))
        parts.append(tag("rect", x=scale(0), y=top + 3, width=width, height=ROW - 7, class_="bar control"))
    for other in others:
        if other in subject.values:
            place = scale(subject.values[other])
            parts.append(line(place, top + 2, place, top + ROW - 3, "subject-mark"))
    # A clear area, so that the whole row answers the pointer.
    parts.append(tag("rect", x=0, y=top, width=WIDTH, height=ROW, class_="hit"))
    return tip("\n".join(told), *parts)
