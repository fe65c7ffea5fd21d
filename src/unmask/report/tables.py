"""The tables of a report, once for both forms: a task's columns and the summary over experiments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from unmask.analysis.frontier import CurvePoint, Point
from unmask.analysis.gains import GAINED
from unmask.analysis.likeness import acts, tokens_a_forward
from unmask.analysis.verdict import Answer
from unmask.analysis.words import (
    MISSING,
    TIMES,
    count,
    duration,
    in_percent,
    join_words,
    level_in_percent,
    probability,
    rate,
    span,
    times,
)
from unmask.report.document import Document, ExperimentPart, TableLine, TaskPart, best_point
from unmask.spec.recipe import Gained


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell."""

    text: str
    note: str = ""
    """Smaller, behind it: an interval."""
    sort: float | str | None = None

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a task's table: in results.md, in report.html and, if it is `brief`, where `unmask run` ends."""

    heading: str
    """`{control}` stands for the name of the task's control."""
    unit: str = ""
    explanation: str
    """`{comparisons}` stands for what the level is good for."""
    cell: Callable[[TableLine], Cell]
    applies: Callable[[TaskPart], bool] = lambda _: True
    """Whether it has something to say about a task."""
    is_number: bool = True
    at_level: bool = False
    """Whether its interval has the level of the task's comparisons, which the heading then names."""
    brief: bool = False

    @property
    def title(self) -> str:
        """Heading and unit, for tables of plain text."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading


def _name(line: TableLine) -> Cell:
    if line.is_control:
        return Cell(line.name, "control", line.name)
    plain = "baseline" if line.same_as_control else "no reuse"
    return Cell(line.name, "" if acts(line.entry) else plain, line.name)


def _accuracy(line: TableLine) -> Cell:
    bounds = line.interval
    return Cell(
        in_percent(line.entry.value), span(bounds.low, bounds.high) if bounds else "", line.entry.value
    )


def _drop(line: TableLine) -> Cell:
    if line.loss is None:
        return Cell(MISSING, "", None)
    if line.loss.equal:
        if line.loss.value:
            return Cell(in_percent(line.loss.value), "must be 0", line.loss.value)
        return Cell("equal by construction", "", 0.0)
    bounds = line.loss.interval
    return Cell(in_percent(line.loss.value), span(bounds.low, bounds.high), line.loss.value)


def _rate(line: TableLine) -> Cell:
    return Cell(rate(line.rate), "", line.rate)


def _p_value(line: TableLine) -> Cell:
    p_value = line.loss.p_value if line.loss else None
    return Cell(probability(p_value), "", p_value)


def _speedup(line: TableLine) -> Cell:
    if line.is_control and line.timing is not None:
        return Cell("1", "", 1.0)
    if line.speedup is None:
        return Cell(MISSING, "", None)
    return Cell(times(line.speedup.value), line.speedup.bounds, line.speedup.value)


def _counted(by: Gained, line: TableLine) -> Cell:
    gain = line.gains.get(by)
    if gain is None:
        return Cell(MISSING, "", None)
    return Cell("1" if line.is_control else times(gain.value), "", gain.value)


def _tokens_a_forward(line: TableLine) -> Cell:
    number = tokens_a_forward(line.entry)
    return Cell(times(number), "", number)


def _programs(line: TableLine) -> Cell:
    ran = {"bubblewrap": "isolated", "unsafe": "unsafe"}.get(line.entry.sandbox or "", MISSING)
    return Cell(ran, "", ran)


def _is_paired(task: TaskPart) -> bool:
    return any(line.loss is not None and line.loss.paired for line in task.lines)


def _is_compared(task: TaskPart) -> bool:
    return any(line.loss is not None for line in task.lines)


def _is_counted(by: Gained, task: TaskPart) -> bool:
    return any(by in line.gains for line in task.lines if not line.is_control)


def _is_timed(task: TaskPart) -> bool:
    return any(line.timing is not None for line in task.lines)


def _has_imported_speeds(task: TaskPart) -> bool:
    return not _is_timed(task) and any(line.entry.foreign and line.rate for line in task.lines)


COLUMNS = (
    Column(
        heading="Configuration",
        explanation="Its name in the recipe.",
        cell=_name,
        is_number=False,
        brief=True,
    ),
    Column(
        heading="Accuracy",
        unit="%",
        explanation="With its own 95 % interval.",
        cell=_accuracy,
        brief=True,
    ),
    Column(
        heading="Drop vs {control}",
        unit="points",
        at_level=True,
        explanation="The control's accuracy minus this one's; positive is a loss. Paired by row: {comparisons}.",
        cell=_drop,
        applies=_is_paired,
        brief=True,
    ),
    Column(
        heading="Drop vs {control}",
        unit="points",
        at_level=True,
        explanation=(
            "The control's accuracy minus this one's; positive is a loss. Not paired (Newcombe's method): "
            "{comparisons}."
        ),
        cell=_drop,
        applies=lambda task: _is_compared(task) and not _is_paired(task),
        brief=True,
    ),
    Column(
        heading="p",
        explanation=(
            "Probability of such a drop by chance, by the test that gives the interval; below 0.05 exactly where the "
            "interval excludes 0. Corrected for the number of comparisons (Bonferroni)."
        ),
        cell=_p_value,
        applies=lambda task: _is_paired(task) and task.comparisons.sequential is None,
    ),
    Column(
        heading="Work skipped",
        unit="%",
        explanation="Share of the layer work that was not done.",
        cell=lambda line: Cell(in_percent(line.skipped), "", line.skipped),
        applies=lambda task: any(line.skipped is not None for line in task.lines),
    ),
    Column(
        heading="Less work",
        unit=TIMES,
        explanation=(
            "The control's counted operations divided by this one's, over the same rows, as if each request ran alone."
        ),
        cell=partial(_counted, "work"),
        applies=partial(_is_counted, "work"),
        brief=True,
    ),
    Column(
        heading="Operations",
        unit=f"{TIMES} control",
        explanation=(
            "Computed operations a token, or a request where options are scored; what was taken over from other "
            "requests is not computed."
        ),
        cell=lambda line: Cell(times(line.work_a_token), "", line.work_a_token),
        applies=lambda task: any(line.work_a_token is not None for line in task.lines if not line.is_control),
    ),
    Column(
        heading="Total time",
        explanation="Of the accuracy run; a total, never evidence of a speed.",
        cell=lambda line: Cell(duration(line.entry.seconds), "", line.entry.seconds),
        applies=lambda task: any(line.entry.seconds is not None for line in task.lines),
    ),
    Column(
        heading="Tokens",
        explanation="Accepted tokens of all answers.",
        cell=lambda line: Cell(count(line.entry.tokens), "", line.entry.tokens),
        applies=lambda task: task.generates,
    ),
    Column(
        heading="Tokens a forward",
        explanation="Accepted tokens over block, sub and commit forwards; autoregressive decoding has 1.",
        cell=_tokens_a_forward,
        applies=lambda task: any(tokens_a_forward(line.entry) for line in task.lines),
        brief=True,
    ),
    Column(
        heading="Speed",
        unit="tokens/s",
        explanation="Median over the rounds of the timing run.",
        cell=_rate,
        applies=lambda task: _is_timed(task) and task.generates,
    ),
    Column(
        heading="Speed",
        unit="requests/s",
        explanation="Median over the rounds of the timing run.",
        cell=_rate,
        applies=lambda task: _is_timed(task) and not task.generates,
    ),
    Column(
        heading="Speed-up vs {control}",
        unit=TIMES,
        at_level=True,
        explanation="Median of ratios in the same round, with an interval of the same level as that of the drop.",
        cell=_speedup,
        applies=_is_timed,
        brief=True,
    ),
    Column(
        heading="Programs",
        explanation="How the programs that the model wrote ran: isolated in bubblewrap, or unsafe, as plain processes.",
        cell=_programs,
        applies=lambda task: any(line.entry.sandbox for line in task.lines),
        is_number=False,
        brief=True,
    ),
    Column(
        heading="Imported speed",
        unit="tokens/s",
        explanation="Total of one accuracy run: it can rank nothing.",
        cell=_rate,
        applies=_has_imported_speeds,
    ),
)
"""All columns of a task's table, in their order. A new one is one entry here."""


def columns_of(task: TaskPart, brief: bool = False) -> list[Column]:
    """The columns that have something to say about a task, under headings that name its control."""
    words = {
        "control": task.control.configuration if task.control else "the control",
        "comparisons": str(task.comparisons),
    }
    level = f", {level_in_percent(task.comparisons.level)} interval"
    return [
        replace(
            column,
            heading=column.heading.format(**words),
            unit=column.unit + level * (column.at_level and not brief),
            explanation=column.explanation.format(**words),
        )
        for column in COLUMNS
        if column.applies(task) and (column.brief or not brief)
    ]


BriefRows = dict[tuple[str, float | None, str], list[str]]
"""Cells by task, limit and configuration."""


def brief_table(tasks: Sequence[TaskPart]) -> tuple[list[str], BriefRows]:
    """The titles of the brief columns of some tasks, and their cells; empty where a task has no such column."""
    columns = {task.key: {column.title: column for column in columns_of(task, brief=True)} for task in tasks}
    titles = list(dict.fromkeys(title for task in tasks for title in columns[task.key]))
    rows: BriefRows = {}
    for task in tasks:
        shown = columns[task.key]
        for line in task.lines:
            cells = [str(shown[title].cell(line)) if title in shown else "" for title in titles]
            rows[task.group.task, task.group.limit, line.name] = cells
    return titles, rows


def levels_note(tasks: Sequence[TaskPart]) -> str:
    """The levels of the intervals in a brief table, whose headings serve several tasks; empty without intervals."""
    levels: dict[str, list[str]] = {}
    for task in tasks:
        if any(column.at_level for column in columns_of(task, brief=True)):
            levels.setdefault(level_in_percent(task.comparisons.level), []).append(task.name)
    parts = [f"{level} on {join_words(names)}" for level, names in levels.items()]
    return f"Intervals of drops and speed-ups: {'; '.join(parts)}." if parts else ""


CURVE_HEADINGS = ("Method", "Points (tokens a forward, accuracy in %)", "Left out", "AUP")


def curve_rows(task: TaskPart) -> list[tuple[str, str, str, str]]:
    """A row for each method whose accuracy under parallelism can be told."""
    return [
        (curve.method, _curve_points(curve.points), _curve_points(curve.left_out), f"{curve.aup:.1f}")
        for curve in task.curves
    ]


def _curve_points(points: Sequence[CurvePoint]) -> str:
    return ", ".join(
        f"{point.configuration} ({point.tokens_a_forward:.2f}, {point.accuracy:.1f})" for point in points
    )


def curve_note(task: TaskPart) -> str:
    """What AUP is, with the accuracy that it is measured by."""
    best = task.curves[0].best
    return (
        "AUP is the area under accuracy (in percent) over tokens a forward, each point weighted by how near it comes "
        f"to the best accuracy of the table, y_max = {best:.1f} %; a point more than 5 below the first of its method "
        "is left out. It is a single number without an interval."
    )


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
    """The configuration that gains most and surely stays within the budget of accuracy."""
    drop: str
    gain: str
    """With what it gains, where that is not speed."""
    answer: Answer | None
    """Of the verdict, where its criteria are about this task."""
    invalid: int
    warnings: int


def across(document: Document) -> list[Across]:
    """All rows, in the order of the experiments."""
    return [row for part in document.parts for row in _across_rows(part)]


def _across_rows(part: ExperimentPart) -> Iterator[Across]:
    for task in part.tasks:
        severities = [
            finding.severity for finding in part.findings if finding.task in (None, task.group.task)
        ]
        best = best_point(task)
        yield Across(
            experiment=part.name,
            task=task.name,
            key=task.key,
            control=task.control.configuration if task.control else MISSING,
            accuracy=in_percent(task.control.value if task.control else None),
            best=best.configuration if best else MISSING,
            drop=in_percent(best.loss.value if best and best.loss else None),
            gain=_gain(best),
            answer=_answer(part, task),
            invalid=severities.count("invalid"),
            warnings=severities.count("warning"),
        )


def _gain(best: Point | None) -> str:
    if best is None:
        return MISSING
    return times(best.gain) + ("" if best.axis == "speed" else f" by {GAINED[best.axis]}")


def _answer(part: ExperimentPart, task: TaskPart) -> Answer | None:
    judged = part.verdict
    return judged.answer if judged and judged.criteria.task == task.group.task else None
