"""The tables of a report, once for both forms: a task's columns, the summary over experiments, heat maps.

Heat maps are tables as well, not pictures: they are read aloud, sorted into a phone's width and printed like any other.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from unmask.analysis.frontier import Point
from unmask.analysis.gains import GAINED
from unmask.analysis.likeness import acts, spec_of
from unmask.analysis.verdict import Answer
from unmask.analysis.words import (
    MISSING,
    TIMES,
    count,
    duration,
    in_percent,
    level_in_percent,
    probability,
    rate,
    span,
    times,
)
from unmask.report.document import Document, ExperimentPart, TableLine, TaskPart, best_point
from unmask.spec import PolicySpec
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
    """`{control}` stands for the name of the task's control, here and below `{level}` for that of its intervals."""
    unit: str = ""
    explanation: str
    """`{comparisons}` stands for what the level is good for."""
    cell: Callable[[TableLine], Cell]
    applies: Callable[[TaskPart], bool] = lambda _: True
    """Whether it has something to say about a task."""
    is_number: bool = True
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
        note = "must be 0" if line.loss.value else "equal by construction"
        return Cell(in_percent(line.loss.value), note, line.loss.value)
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
        unit="points, {level} interval",
        explanation="The control's accuracy minus this one's; positive is a loss. Paired by row: {comparisons}.",
        cell=_drop,
        applies=_is_paired,
        brief=True,
    ),
    Column(
        heading="Drop vs {control}",
        unit="points, {level} interval",
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
        applies=_is_paired,
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
        unit=f"{TIMES}, {{level}} interval",
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
        "level": level_in_percent(task.comparisons.level),
        "comparisons": str(task.comparisons),
    }
    return [
        replace(
            column,
            heading=column.heading.format(**words),
            unit=column.unit.format(**words),
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


KNOWN_ORDER = {"first": 0, "middle": 1, "last": 2}


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell; `share` places it between the smallest and the largest value."""

    text: str
    share: float | None
    name: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A table of one figure over two fields."""

    title: str
    rows_name: str
    columns_name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell | None, ...]], ...]


def heat_maps(task: TaskPart) -> list[HeatMap]:
    """Accuracy, speed-up and work skipped over every grid of the task."""
    return [
        _heat_map(f"{title}{about}", axes, lines, value, form)
        for axes, about, lines in _grids(task)
        for title, value, form in _heat_figures(lines)
    ]


Figure = tuple[str, Callable[[TableLine], float | None], Callable[[float | None], str]]


def _heat_figures(lines: Iterable[TableLine]) -> list[Figure]:
    found: list[Figure] = [("Accuracy (%)", lambda line: line.entry.value, in_percent)]
    known = list(lines)
    if any(line.speedup is not None for line in known):
        found.append((f"Speed-up ({TIMES})", _speed_figure, times))
    elif any(line.rate for line in known):
        found.append(("Imported speed (tokens/s)", lambda line: line.rate, lambda v: times(v, 1)))
    if any(line.skipped for line in known):
        found.append(("Work skipped (%)", lambda line: line.skipped, in_percent))
    return found


def _speed_figure(line: TableLine) -> float | None:
    if line.speedup is not None:
        return line.speedup.value
    return 1.0 if line.is_control and line.timing is not None else None


def _grids(task: TaskPart) -> list[tuple[tuple[str, str], str, list[TableLine]]]:
    """Pairs of fields with the lines they span, one for every setting of the remaining fields."""
    kinds: dict[str, list[TableLine]] = {}
    for line in task.lines:
        kinds.setdefault(str(line.entry.policy.get("kind")), []).append(line)
    grids = []
    for lines in kinds.values():
        varying = _varying(lines)
        if len(varying) < 2:
            continue
        axes = _axes(varying, spec_of(lines[0].entry))
        rest = [name for name in varying if name not in axes]
        facets: dict[Hashable, list[TableLine]] = {}
        for line in lines:
            facets.setdefault(tuple(_shown(_settings(line).get(name)) for name in rest), []).append(line)
        for values, same in facets.items():
            about = ", ".join(f"{name} = {value}" for name, value in zip(rest, values, strict=True))  # type: ignore[call-overload]
            spread = [{_shown(_settings(line).get(name)) for line in same} for name in axes]
            if min(len(values) for values in spread) > 1:
                grids.append((axes, f" at {about}" if about else "", same))
    return grids


def _varying(lines: Iterable[TableLine]) -> list[str]:
    values: dict[str, set[str]] = {}
    for line in lines:
        for name, value in _settings(line).items():
            values.setdefault(name, set()).add(_shown(value))
    return [name for name, shown in values.items() if len(shown) > 1]


def _axes(varying: list[str], spec: PolicySpec | None) -> tuple[str, str]:
    """The two fields that the policy names, if both vary, else the first two that do."""
    preferred = [name for name in spec.axes if name in varying] if spec else []
    first, second = preferred if len(preferred) == 2 else varying[:2]
    return first, second


def _settings(line: TableLine) -> dict[str, Any]:
    decode: Mapping[str, Any] = line.entry.decode
    return {
        **{name: value for name, value in line.entry.policy.items() if name != "kind"},
        **{f"decode.{name}": value for name, value in decode.items()},
    }


def _heat_map(
    title: str,
    axes: tuple[str, str],
    lines: list[TableLine],
    value: Callable[[TableLine], float | None],
    form: Callable[[float | None], str],
) -> HeatMap:
    across, down = axes
    known = [figure for line in lines if (figure := value(line)) is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    cells: dict[tuple[str, str], HeatCell] = {}
    for line in lines:
        figure, settings = value(line), _settings(line)
        share = None if figure is None else (figure - low) / (high - low) if high > low else 0.5
        place = _shown(settings.get(down)), _shown(settings.get(across))
        cells.setdefault(place, HeatCell(form(figure) if figure is not None else MISSING, share, line.name))
    columns = _ordered({place[1] for place in cells})
    rows = _ordered({place[0] for place in cells})
    return HeatMap(
        title=title,
        rows_name=down.removeprefix("decode."),
        columns_name=across.removeprefix("decode."),
        columns=tuple(columns),
        rows=tuple((row, tuple(cells.get((row, column)) for column in columns)) for row in rows),
    )


def _ordered(values: Iterable[str]) -> list[str]:
    def key(text: str) -> tuple[float, str]:
        try:
            return float(text), text
        except ValueError:
            return float(KNOWN_ORDER.get(text, 9)), text

    return sorted(values, key=key)


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)
