"""The ledger: layer work by kind of forward, computed and skipped, for every configuration."""

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from unmask.report.document import Line, TaskPart
from unmask.report.figures.svg import WIDTH, Scale, line, picture, tag, text, tip
from unmask.report.numbers import count, percent

KINDS = ("prefill", "block", "sub", "commit")
ROW = 22
LABEL = 110


def by_kind(one: Line) -> dict[str, dict[str, int]]:
    """Forwards, computed and skipped layer rows by kind, all paths together."""
    found: dict[str, dict[str, int]] = {}
    for part in one.entry.effect.values():
        for kind, work in part.by_kind.items():
            sums = found.setdefault(kind, {"forwards": 0, "branch_rows": 0, "branch_rows_skipped": 0})
            sums["forwards"] += work.forwards
            sums["branch_rows"] += work.branch_rows
            sums["branch_rows_skipped"] += work.branch_rows_skipped
    return found


def ledger_bars(task: TaskPart) -> Markup | None:
    """One bar a configuration; None where nothing was counted."""
    found = [(one, by_kind(one)) for one in task.lines]
    counted = [(one, kinds) for one, kinds in found if kinds]
    if not counted:
        return None
    largest = max(_total(kinds) for _, kinds in counted) or 1
    scale = Scale(0, 1, LABEL, WIDTH - 14)
    bottom = 6 + ROW * len(counted)
    parts: list[Markup] = []
    for value in scale.ticks(4):
        parts.append(line(scale(value), 2, scale(value), bottom, "grid"))
        parts.append(text(scale(value), bottom + 15, percent(value, 0), "tick", "middle"))
    for number, (one, kinds) in enumerate(counted):
        top = 6 + ROW * number
        parts.append(text(LABEL - 8, top + 13, one.name, "tick", "end"))
        parts += _bar(one, kinds, top, scale, largest)
    parts.append(
        text((LABEL + WIDTH) / 2, bottom + 32, "layer rows, % of the largest", "axis-name", "middle")
    )
    return picture(WIDTH, bottom + 40, f"Layer work by kind of forward on {task.name}", parts, "ledger")


def _bar(
    one: Line, kinds: Mapping[str, Mapping[str, int]], top: float, scale: Scale, largest: int
) -> Iterator[Markup]:
    place = 0.0
    for skipped in (False, True):
        for kind in (*KINDS, *(name for name in kinds if name not in KINDS)):
            work = kinds.get(kind)
            rows = work["branch_rows_skipped" if skipped else "branch_rows"] if work else 0
            if not rows or work is None:
                continue
            start, stop = scale(place / largest), scale((place + rows) / largest)
            place += rows
            told = f"{one.name}, {kind}: {count(rows)} layer rows {'skipped' if skipped else 'computed'}"
            class_ = f"kind-{kind if kind in KINDS else 'other'}"
            shape = {"x": start, "y": top + 2, "width": max(0.5, stop - start - 0.5), "height": ROW - 7}
            bars = [tag("rect", class_=f"bar {class_}{' skipped' if skipped else ''}", **shape)]
            if skipped:
                bars.append(tag("rect", class_="hatched", **shape))
            yield tip(f"{told}; {count(work['forwards'])} forwards", *bars)


def _total(kinds: Mapping[str, Mapping[str, int]]) -> int:
    return sum(work["branch_rows"] + work["branch_rows_skipped"] for work in kinds.values())
