"""The columns of a task's table, once for both forms: heading, unit, text and the number to sort by."""

from collections.abc import Callable
from dataclasses import dataclass

from unmask.analysis.likeness import acts
from unmask.report.document import Line, TaskPart
from unmask.report.numbers import MISSING, TIMES, count, duration, percent, probability, rate, span, times


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    text: str
    note: str = ""
    """Smaller, behind it: an interval."""
    sort: float | str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    heading: str
    unit: str
    explanation: str
    cell: Callable[[Line], Cell]
    is_number: bool = True


def columns_of(task: TaskPart) -> list[Column]:
    """The columns that have something to say about a task."""
    control = task.control.configuration if task.control else "the control"
    paired = any(line.loss is not None and line.loss.paired for line in task.lines)
    timed = any(line.timing is not None for line in task.lines)
    foreign = any(line.entry.foreign for line in task.lines)
    unit = "tokens/s" if task.generates else "requests/s"
    found = [
        Column("Configuration", "", "Its name in the recipe.", _name, is_number=False),
        Column("Accuracy", "%", "With Wilson's 95 % interval.", _accuracy),
    ]
    if any(line.loss is not None for line in task.lines):
        paired_by = "Paired by row, 95 % interval." if paired else "Not paired (Newcombe's 95 % interval)."
        meaning = f"The control's accuracy minus this one's; positive is a loss. {paired_by}"
        found.append(Column(f"Drop vs {control}", "points", meaning, _drop))
    if paired:
        found.append(
            Column(
                "p",
                "Holm",
                "Exact McNemar test, corrected by Holm's method over all comparisons of the table.",
                _p_value,
            )
        )
    if any(line.skipped is not None for line in task.lines):
        found.append(Column("Work skipped", "%", "Share of the layer work that was not done.", _skipped))
    if any(line.entry.seconds is not None for line in task.lines):
        meaning = "Of the accuracy run; a total, never evidence of a speed."
        found.append(Column("Total time", "", meaning, _time))
    if task.generates:
        found.append(Column("Tokens", "", "Accepted tokens of all answers.", _tokens))
    if timed:
        found += [
            Column("Speed", unit, "Median over the rounds of the timing run.", _rate),
            Column(
                f"Speed-up vs {control}",
                TIMES,
                "Median of ratios in the same round, 95 % interval.",
                _speedup,
            ),
        ]
    elif foreign and any(line.rate for line in task.lines):
        found.append(
            Column("Imported speed", "tokens/s", "Total of one accuracy run: it can rank nothing.", _rate)
        )
    return found


def _name(line: Line) -> Cell:
    if line.is_control:
        return Cell(line.name, "control", line.name)
    plain = "baseline" if line.same_as_control else "no reuse"
    return Cell(line.name, "" if acts(line.entry) else plain, line.name)


def _accuracy(line: Line) -> Cell:
    bounds = line.interval
    return Cell(percent(line.entry.value), span(bounds.low, bounds.high) if bounds else "", line.entry.value)


def _drop(line: Line) -> Cell:
    if line.loss is None:
        return Cell(MISSING, "", None)
    if line.same_as_control and line.loss.value == 0:
        return Cell(percent(0.0), "by construction", 0.0)
    bounds = line.loss.interval
    return Cell(percent(line.loss.value), span(bounds.low, bounds.high), line.loss.value)


def _p_value(line: Line) -> Cell:
    return Cell(probability(line.p_value), "", line.p_value)


def _skipped(line: Line) -> Cell:
    return Cell(percent(line.skipped), "", line.skipped)


def _time(line: Line) -> Cell:
    return Cell(duration(line.entry.seconds), "", line.entry.seconds)


def _tokens(line: Line) -> Cell:
    return Cell(count(line.entry.tokens), "", line.entry.tokens)


def _rate(line: Line) -> Cell:
    return Cell(rate(line.rate), "", line.rate)


def _speedup(line: Line) -> Cell:
    if line.is_control and line.timing is not None:
        return Cell("1", "", 1.0)
    if line.speedup is None:
        return Cell(MISSING, "", None)
    return Cell(
        times(line.speedup.value),
        line.speedup.bounds,
        line.speedup.value,
    )
