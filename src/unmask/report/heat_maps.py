"""Heat maps of a report: accuracy, gains and work skipped over two fields of a grid.

They are tables, not pictures: they are read aloud, sorted into a phone's width and printed like any other.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from unmask.analysis.words import MISSING, TIMES, in_percent, times
from unmask.report.document import TableLine, TaskPart
from unmask.spec import PolicySpec, known_policy

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
        kinds.setdefault(str(line.entry.named[0].get("kind")), []).append(line)
    grids = []
    for lines in kinds.values():
        varying = _varying(lines)
        if len(varying) < 2:
            continue
        axes = _axes(varying, known_policy(lines[0].entry.named[0]))
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
    policy, decode = line.entry.named
    return {
        **{name: value for name, value in policy.items() if name != "kind"},
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
