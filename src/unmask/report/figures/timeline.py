"""The timeline of a sweep: every attempt as a bar on the machine it ran on."""

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from unmask.report.document import AttemptSpan
from unmask.report.figures.svg import Scale, line, picture, tag, text, tip
from unmask.report.numbers import duration

WIDTH = 940
LABEL = 128
LANE = 15
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800)
"""Seconds between marks of the axis."""


def timeline(attempts: Sequence[AttemptSpan]) -> Markup | None:
    """Attempts by host; None where there are none."""
    if not attempts:
        return None
    first = min(one.start for one in attempts)
    last = max(max(one.stop for one in attempts), first + 1)
    scale = Scale(first, last, LABEL, WIDTH - 14)
    parts: list[Markup] = []
    top = 8.0
    for host in sorted({one.host for one in attempts}):
        lanes = _lanes([one for one in attempts if one.host == host])
        parts.append(text(LABEL - 10, top + 12, host if len(host) < 20 else f"{host[:19]}…", "tick", "end"))
        for number, lane in enumerate(lanes):
            parts += [_bar(one, top + number * LANE, scale) for one in lane]
        top += len(lanes) * LANE + 6
        parts.append(line(LABEL, top - 3, WIDTH - 14, top - 3, "grid"))
    parts += _axis(first, last, scale, top)
    return picture(WIDTH, top + 38, f"{len(attempts)} attempts by host", parts, "timeline")


def _lanes(attempts: Sequence[AttemptSpan]) -> list[list[AttemptSpan]]:
    """Attempts that overlap are put below each other."""
    lanes: list[list[AttemptSpan]] = []
    for one in sorted(attempts, key=lambda each: (each.start, each.stop)):
        free = next((lane for lane in lanes if lane[-1].stop <= one.start), None)
        if free is None:
            lanes.append([one])
        else:
            free.append(one)
    return lanes


def _bar(one: AttemptSpan, top: float, scale: Scale) -> Markup:
    start, stop = scale(one.start), scale(one.stop)
    told = (
        f"{one.label} on {one.task}: {one.state}, {duration(one.stop - one.start)}, from {_moment(one.start)}"
    )
    class_ = f"attempt {one.state}{' timing' if one.kind == 'timing' else ''}"
    bar = tag("rect", x=start, y=top + 2, width=max(1.5, stop - start - 0.7), height=LANE - 4, class_=class_)
    return tip(f"{told}{chr(10) + one.note if one.note else ''}", bar)


def _axis(first: float, last: float, scale: Scale, bottom: float) -> list[Markup]:
    step = next((one for one in STEPS if (last - first) / one <= 8), STEPS[-1])
    parts = [line(LABEL, bottom, WIDTH - 14, bottom, "axis")]
    value = 0.0
    while first + value <= last:
        place = scale(first + value)
        parts.append(line(place, bottom, place, bottom + 4, "axis"))
        parts.append(text(place, bottom + 17, _since(value, step), "tick", "middle"))
        value += step
    name = f"since {_moment(first)} UTC"
    parts.append(text((LABEL + WIDTH) / 2, bottom + 33, name, "axis-name", "middle"))
    return parts


def _since(seconds: float, step: float) -> str:
    if step < 60:
        return f"{seconds:.0f} s"
    if step < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if step < 86400 else f"{seconds / 86400:.0f} d"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
