"""Grids of configurations as heat maps: two fields of the settings span a table, its cells are figures.

Made as tables, not as pictures: they are read aloud, sorted into a phone's width and printed like any other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.report.document import Line, TaskPart
from unmask.report.numbers import MISSING, TIMES, percent, times

PREFERRED = ("k", "layers")
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
        _map(f"{title}{about}", axes, lines, value, form)
        for axes, about, lines in _grids(task)
        for title, value, form in _figures(lines)
    ]


Figure = tuple[str, Callable[[Line], float | None], Callable[[float | None], str]]


def _figures(lines: Iterable[Line]) -> list[Figure]:
    found: list[Figure] = [("Accuracy (%)", lambda line: line.entry.value, percent)]
    known = list(lines)
    if any(line.speedup is not None for line in known):
        found.append((f"Speed-up ({TIMES})", _speed, times))
    elif any(line.rate for line in known):
        found.append(("Imported speed (tokens/s)", lambda line: line.rate, lambda v: times(v, 1)))
    if any(line.skipped for line in known):
        found.append(("Work skipped (%)", lambda line: line.skipped, percent))
    return found


def _speed(line: Line) -> float | None:
    if line.speedup is not None:
        return line.speedup.value
    return 1.0 if line.is_control and line.timing is not None else None


def _grids(task: TaskPart) -> list[tuple[tuple[str, str], str, list[Line]]]:
    """Pairs of fields with the lines they span, one for every setting of the remaining fields."""
    kinds: dict[str, list[Line]] = {}
    for line in task.lines:
        kinds.setdefault(str(line.entry.policy.get("kind")), []).append(line)
    found = []
    for lines in kinds.values():
        varying = _varying(lines)
        if len(varying) < 2:
            continue
        axes = _axes(varying)
        rest = [name for name in varying if name not in axes]
        facets: dict[Hashable, list[Line]] = {}
        for line in lines:
            facets.setdefault(tuple(_shown(_settings(line).get(name)) for name in rest), []).append(line)
        for values, same in facets.items():
            about = ", ".join(f"{name} = {value}" for name, value in zip(rest, values, strict=True))  # type: ignore[call-overload]
            spread = [{_shown(_settings(line).get(name)) for line in same} for name in axes]
            if min(len(values) for values in spread) > 1:
                found.append((axes, f" at {about}" if about else "", same))
    return found


def _varying(lines: Iterable[Line]) -> list[str]:
    values: dict[str, set[str]] = {}
    for line in lines:
        for name, value in _settings(line).items():
            values.setdefault(name, set()).add(_shown(value))
    return [name for name, found in values.items() if len(found) > 1]


def _axes(varying: list[str]) -> tuple[str, str]:
    if all(name in varying for name in PREFERRED):
        return PREFERRED
    return varying[0], varying[1]


def _settings(line: Line) -> dict[str, Any]:
    decode: Mapping[str, Any] = line.entry.decode
    return {
        **{name: value for name, value in line.entry.policy.items() if name != "kind"},
        **{f"decode.{name}": value for name, value in decode.items()},
    }


def _map(
    title: str,
    axes: tuple[str, str],
    lines: list[Line],
    value: Callable[[Line], float | None],
    form: Callable[[float | None], str],
) -> HeatMap:
    across, down = axes
    known = [found for line in lines if (found := value(line)) is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    cells: dict[tuple[str, str], HeatCell] = {}
    for line in lines:
        found, settings = value(line), _settings(line)
        share = None if found is None else (found - low) / (high - low) if high > low else 0.5
        place = _shown(settings.get(down)), _shown(settings.get(across))
        cells.setdefault(place, HeatCell(form(found) if found is not None else MISSING, share, line.name))
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
