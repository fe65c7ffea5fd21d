"""The pictures of a report: frontier, work against speed, ledger, subjects, timeline.

Each is a function from a part of the document to SVG text, or to None where there is nothing to draw.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from unmask.analysis.frontier import Point
from unmask.analysis.gains import GAINED
from unmask.analysis.words import TIMES, count, duration, in_percent, join_words, span, times
from unmask.report.document import AttemptSpan, Subject, TableLine, TaskPart
from unmask.report.svg import (
    WIDTH,
    Label,
    PlotFrame,
    Scale,
    labels,
    line,
    marker,
    padded,
    path,
    picture,
    tag,
    text,
    tip,
)
from unmask.spec.recipe import Gained

HEIGHT = 320
FEW_POINTS = 16
"""Points up to which all are labelled."""
AXIS_NAMES: dict[Gained, str] = {
    "speed": f"speed-up over the control ({TIMES})",
    "work": f"counted operations, control ÷ configuration ({TIMES})",
    "tokens_a_forward": f"tokens a forward, configuration ÷ control ({TIMES})",
    "predicted:rtx6000": f"speed-up predicted for the rtx6000, not measured ({TIMES})",
    "predicted:a100": f"speed-up predicted for the a100, not measured ({TIMES})",
    "predicted:l40s": f"speed-up predicted for the l40s, not measured ({TIMES})",
    "predicted:h100": f"speed-up predicted for the h100, not measured ({TIMES})",
}


def frontier_plot(task: TaskPart, points: Sequence[Point]) -> Markup | None:
    """The plane of accuracy and gain; None with fewer than two points."""
    if len(points) < 2:
        return None
    lines = {line_.name: line_ for line_ in task.lines}
    frame = PlotFrame(
        Scale(*padded(_gains(points), 0.12, 0.02), 52, WIDTH - 22),
        Scale(*padded(_accuracies(points, lines), 0.06, 0.01), HEIGHT - 48, 30),
    )
    axis = points[0].axis
    parts: list[Markup] = [
        *frame.axes(
            AXIS_NAMES[axis], "accuracy (%)", lambda value: f"{value:g}", lambda value: in_percent(value, 0)
        ),
        *_criterion(task, points, frame),
        *_staircase(points, frame),
        *_curve(points, frame),
        *(part for point in points for part in _bars(point, lines[point.configuration], frame)),
    ]
    spots = _spots(points, frame)
    parts += [_mark(spot, lines, frame, task) for spot in spots]
    named = [spot for spot in spots if len(points) <= FEW_POINTS or _is_named(spot, task)]
    parts += labels([_label(spot, frame, task) for spot in named], frame)
    title = f"Accuracy against {AXIS_NAMES[axis]} on {task.name}: not dominated are "
    return picture(
        WIDTH,
        HEIGHT,
        title + join_words(p.configuration for p in points if not p.dominated_by),
        parts,
        "frontier",
    )


def _gains(points: Iterable[Point]) -> Iterator[float]:
    for point in points:
        yield point.gain
        if point.axis == "speed" and point.speedup:
            yield from (point.speedup.low, point.speedup.high) if point.speedup.bounded else ()


def _accuracies(points: Iterable[Point], lines: dict[str, TableLine]) -> Iterator[float]:
    for point in points:
        yield point.accuracy
        bounds = lines[point.configuration].interval
        if bounds is not None:
            yield from (bounds.low, bounds.high)


def _criterion(task: TaskPart, points: Sequence[Point], frame: PlotFrame) -> Iterator[Markup]:
    """Where a configuration would have to lie to confirm the hypothesis."""
    success = task.group.experiment.success
    if success is None or success.task != task.group.task or points[0].axis != success.by or not task.control:
        return
    x, y = frame.x(success.confirm.least_gain), frame.y(task.control.value - success.confirm.drop)
    right, top = frame.x.stop, frame.y.stop
    if x < right and y > top:
        left, low = max(x, frame.x.start), min(y, frame.y.start)
        yield tip(
            f"asked for: more than {success.confirm.least_gain:g} times by {GAINED[success.by]}, losing less than "
            f"{in_percent(success.confirm.drop)} points",
            path([(left, top), (right, top), (right, low), (left, low)], "goal"),
            line(left, top, left, low, "goal-edge"),
            line(left, low, right, low, "goal-edge"),
        )


def _staircase(points: Sequence[Point], frame: PlotFrame) -> Iterator[Markup]:
    """The frontier as steps: the best accuracy at each gain."""
    kept = sorted((p for p in points if not p.dominated_by), key=lambda p: p.gain)
    steps: list[tuple[float, float]] = []
    for point in kept:
        x, y = frame.x(point.gain), frame.y(point.accuracy)
        if steps:
            steps.append((steps[-1][0], y))
        steps.append((x, y))
    if len(steps) > 1:
        yield path(steps, "staircase")


def _curve(points: Sequence[Point], frame: PlotFrame) -> Iterator[Markup]:
    plain = sorted((p for p in points if p.threshold is not None), key=lambda p: p.gain)
    for settings in dict.fromkeys(p.settings for p in plain):
        curve = [p for p in plain if p.settings == settings]
        if len({p.threshold for p in curve}) > 1:
            yield path([(frame.x(p.gain), frame.y(p.accuracy)) for p in curve], "threshold-curve")


def _bars(point: Point, line_: TableLine, frame: PlotFrame) -> Iterator[Markup]:
    x, y = frame.x(point.gain), frame.y(point.accuracy)
    bounds = line_.interval
    if bounds is not None:
        yield line(x, frame.y(bounds.low), x, frame.y(bounds.high), "error-bar")
    if point.axis == "speed" and point.speedup and point.speedup.bounded:
        yield line(frame.x(point.speedup.low), y, frame.x(point.speedup.high), y, "error-bar")


def _spots(points: Sequence[Point], frame: PlotFrame) -> list[list[Point]]:
    """Points that are drawn at the same place, which share a mark and a label."""
    spots: list[list[Point]] = []
    for point in points:
        x, y = frame.x(point.gain), frame.y(point.accuracy)
        for spot in spots:
            if abs(frame.x(spot[0].gain) - x) < 3 and abs(frame.y(spot[0].accuracy) - y) < 3:
                spot.append(point)
                break
        else:
            spots.append([point])
    return spots


def _mark(spot: list[Point], lines: dict[str, TableLine], frame: PlotFrame, task: TaskPart) -> Markup:
    point = spot[0]
    is_control = any(task.control is not None and p.configuration == task.control.configuration for p in spot)
    kind = "square" if is_control else "diamond" if not point.acts else "disc"
    kept = any(not p.dominated_by for p in spot)
    class_ = f"mark {'reuse' if point.acts else 'plain'}{'' if kept else ' dominated'}"
    return tip(
        "\n".join(_point_tip(p, lines[p.configuration]) for p in spot),
        marker(frame.x(point.gain), frame.y(point.accuracy), kind, class_),
        class_="spot",
    )


def _point_tip(point: Point, line_: TableLine) -> str:
    tooltip = f"{point.configuration}: {in_percent(point.accuracy)} %, {point.gain:.2f} times"
    if point.loss is not None:
        bounds = point.loss.interval
        error = "equal by construction" if point.loss.equal else span(bounds.low, bounds.high)
        tooltip += f", loses {in_percent(point.loss.value)} points ({error})"
    if line_.skipped:
        tooltip += f", {in_percent(line_.skipped)} % of the layer work skipped"
    if point.dominated_by:
        tooltip += (
            f"; {'surely ' if point.certainly else ''}dominated by {join_words(point.dominated_by[:3])}"
        )
    return tooltip


def _is_named(spot: list[Point], task: TaskPart) -> bool:
    return any(
        not point.dominated_by
        or point.threshold is not None
        or (task.control is not None and point.configuration == task.control.configuration)
        for point in spot
    )


def _label(spot: list[Point], frame: PlotFrame, task: TaskPart) -> Label:
    names = [point.configuration for point in spot]
    control = task.control.configuration if task.control else None
    names.sort(key=lambda name: name != control)
    content = names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"
    return Label(frame.x(spot[0].gain), frame.y(spot[0].accuracy), content)


HEIGHT = 320


def work_plot(task: TaskPart) -> Markup | None:
    """Speed-up over operations saved; on the diagonal all saved work becomes speed."""
    timed = [
        (line_, 1 / line_.work_a_token, line_.speedup)
        for line_ in task.lines
        if line_.work_a_token and line_.speedup is not None
    ]
    if not timed:
        return None
    gains = [1.0, *(gain for _, gain, _ in timed)]
    speeds = [1.0, *(speed.value for _, _, speed in timed)]
    speeds += [bound for _, _, speed in timed if speed.bounded for bound in (speed.low, speed.high)]
    low, high = padded([*gains, *speeds], 0.06, 0.02)
    frame = PlotFrame(Scale(low, high, 52, WIDTH - 22), Scale(low, high, HEIGHT - 48, 30))
    parts: list[Markup] = [
        *frame.axes(
            f"operations a token, control ÷ configuration ({TIMES})",
            f"speed-up ({TIMES})",
            lambda value: f"{value:g}",
            lambda value: f"{value:g}",
        ),
        line(frame.x(low), frame.y(low), frame.x(high), frame.y(high), "diagonal"),
        line(frame.x(1), frame.y.start, frame.x(1), frame.y.stop, "unity"),
        line(frame.x.start, frame.y(1), frame.x.stop, frame.y(1), "unity"),
    ]
    spots: list[Label] = []
    for line_, gain, speed in timed:
        x, y = frame.x(gain), frame.y(speed.value)
        if speed.bounded:
            parts.append(line(x, frame.y(speed.low), x, frame.y(speed.high), "error-bar"))
        tooltip = (
            f"{line_.name}: {times(gain)} times fewer operations a token, {times(speed.value)} times as fast "
            f"({speed.bounds}), {in_percent(line_.skipped)} % of the layer work skipped"
        )
        class_ = "mark reuse" if line_.skipped else "mark plain"
        parts.append(
            tip(tooltip, marker(x, y, "disc" if line_.skipped else "diamond", class_), class_="spot")
        )
        near = next((spot for spot in spots if abs(spot.x - x) < 3 and abs(spot.y - y) < 6), None)
        if near is None:
            spots.append(Label(x, y, line_.name))
        else:
            name, _, more = near.content.partition(" +")
            near.content = f"{name} +{int(more or 0) + 1}"
    parts += labels(spots, frame)
    return picture(WIDTH, HEIGHT, f"Speed-up against operations saved on {task.name}", parts, "work")


KINDS = ("prefill", "block", "tail", "sub", "commit")
"""Kinds of forward in the order in which bars and tables show them; `tail` only where there is one."""
LEDGER_ROW = 22
LEDGER_LABEL = 110


def ledger_bars(task: TaskPart) -> Markup | None:
    """One bar a configuration; None where nothing was counted."""
    ledgers = [(line_, line_.by_kind) for line_ in task.lines]
    counted = [(line_, kinds) for line_, kinds in ledgers if kinds]
    if not counted:
        return None
    largest = max(_all_rows(kinds) for _, kinds in counted) or 1
    scale = Scale(0, 1, LEDGER_LABEL, WIDTH - 14)
    bottom = 6 + LEDGER_ROW * len(counted)
    parts: list[Markup] = []
    for value in scale.ticks(4):
        parts.append(line(scale(value), 2, scale(value), bottom, "grid"))
        parts.append(text(scale(value), bottom + 15, in_percent(value, 0), "tick", "middle"))
    for number, (line_, kinds) in enumerate(counted):
        top = 6 + LEDGER_ROW * number
        parts.append(text(LEDGER_LABEL - 8, top + 13, line_.name, "tick", "end"))
        parts += _ledger_bar(line_, kinds, top, scale, largest)
    parts.append(
        text((LEDGER_LABEL + WIDTH) / 2, bottom + 32, "layer rows, % of the largest", "axis-name", "middle")
    )
    return picture(WIDTH, bottom + 40, f"Layer work by kind of forward on {task.name}", parts, "ledger")


def _ledger_bar(
    line_: TableLine, kinds: Mapping[str, Mapping[str, int]], top: float, scale: Scale, largest: int
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
            tooltip = f"{line_.name}, {kind}: {count(rows)} layer rows {'skipped' if skipped else 'computed'}"
            class_ = f"kind-{kind if kind in KINDS else 'other'}"
            shape = {
                "x": start,
                "y": top + 2,
                "width": max(0.5, stop - start - 0.5),
                "height": LEDGER_ROW - 7,
            }
            bars = [tag("rect", class_=f"bar {class_}{' skipped' if skipped else ''}", **shape)]
            if skipped:
                bars.append(tag("rect", class_="hatched", **shape))
            yield tip(f"{tooltip}; {count(work['forwards'])} forwards", *bars)


def _all_rows(kinds: Mapping[str, Mapping[str, int]]) -> int:
    return sum(work["branch_rows"] + work["branch_rows_skipped"] for work in kinds.values())


SUBJECT_ROW = 19
SUBJECT_LABEL = 168
SUBJECT_LETTERS = 26


def subject_bars(task: TaskPart, subjects: Sequence[Subject]) -> Markup | None:
    """One row a subject; None where there are none."""
    if not subjects:
        return None
    scale = Scale(0, 1, SUBJECT_LABEL, WIDTH - 14)
    bottom = 8 + SUBJECT_ROW * len(subjects)
    control = task.control.configuration if task.control else task.lines[0].name
    others = [line_.name for line_ in task.lines if line_.name != control and not line_.same_as_control]
    parts: list[Markup] = []
    for value in scale.ticks(4):
        parts.append(line(scale(value), 4, scale(value), bottom, "grid"))
        parts.append(text(scale(value), bottom + 15, in_percent(value, 0), "tick", "middle"))
    for number, subject in enumerate(subjects):
        parts.append(_subject_row(subject, 8 + SUBJECT_ROW * number, scale, control, others))
    parts.append(text((SUBJECT_LABEL + WIDTH) / 2, bottom + 32, "accuracy (%)", "axis-name", "middle"))
    return picture(WIDTH, bottom + 40, f"Accuracy by subject on {task.name}", parts, "subjects")


def _subject_row(subject: Subject, top: float, scale: Scale, control: str, others: Sequence[str]) -> Markup:
    name = subject.name.replace("_", " ")
    shown = name if len(name) <= SUBJECT_LETTERS else f"{name[: SUBJECT_LETTERS - 1]}…"
    tooltip = [f"{name}" + (f", {subject.rows:,} rows" if subject.rows else "")]
    tooltip += [
        f"{name_}: {in_percent(subject.values[name_])} %"
        for name_ in (control, *others)
        if name_ in subject.values
    ]
    parts = [text(SUBJECT_LABEL - 8, top + 12, shown, "tick", "end")]
    value = subject.values.get(control)
    if value is not None:
        width = max(0.0, scale(value) - scale(0))
        parts.append(
            tag("rect", x=scale(0), y=top + 3, width=width, height=SUBJECT_ROW - 7, class_="bar control")
        )
    for other in others:
        if other in subject.values:
            place = scale(subject.values[other])
            parts.append(line(place, top + 2, place, top + SUBJECT_ROW - 3, "subject-mark"))
    # A clear area, so that the whole row answers the pointer.
    parts.append(tag("rect", x=0, y=top, width=WIDTH, height=SUBJECT_ROW, class_="hit"))
    return tip("\n".join(tooltip), *parts)


TIMELINE_WIDTH = 940
TIMELINE_LABEL = 128
LANE = 15
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800)
"""Seconds between marks of the axis."""


def timeline(attempts: Sequence[AttemptSpan]) -> Markup | None:
    """Attempts by host; None where there are none."""
    if not attempts:
        return None
    first = min(attempt.start for attempt in attempts)
    last = max(max(attempt.stop for attempt in attempts), first + 1)
    scale = Scale(first, last, TIMELINE_LABEL, TIMELINE_WIDTH - 14)
    parts: list[Markup] = []
    top = 8.0
    for host in sorted({attempt.host for attempt in attempts}):
        lanes = _lanes([attempt for attempt in attempts if attempt.host == host])
        parts.append(
            text(TIMELINE_LABEL - 10, top + 12, host if len(host) < 20 else f"{host[:19]}…", "tick", "end")
        )
        for number, lane in enumerate(lanes):
            parts += [_attempt_bar(attempt, top + number * LANE, scale) for attempt in lane]
        top += len(lanes) * LANE + 6
        parts.append(line(TIMELINE_LABEL, top - 3, TIMELINE_WIDTH - 14, top - 3, "grid"))
    parts += _axis(first, last, scale, top)
    return picture(TIMELINE_WIDTH, top + 38, f"{len(attempts)} attempts by host", parts, "timeline")


def _lanes(attempts: Sequence[AttemptSpan]) -> list[list[AttemptSpan]]:
    """Attempts that overlap are put below each other."""
    lanes: list[list[AttemptSpan]] = []
    for attempt in sorted(attempts, key=lambda attempt_: (attempt_.start, attempt_.stop)):
        free = next((lane for lane in lanes if lane[-1].stop <= attempt.start), None)
        if free is None:
            lanes.append([attempt])
        else:
            free.append(attempt)
    return lanes


def _attempt_bar(attempt: AttemptSpan, top: float, scale: Scale) -> Markup:
    start, stop = scale(attempt.start), scale(attempt.stop)
    took = duration(attempt.stop - attempt.start)
    tooltip = f"{attempt.label} on {attempt.task}: {attempt.state}, {took}, from {_moment(attempt.start)}"
    class_ = f"attempt {attempt.state}{' timing' if attempt.kind == 'timing' else ''}"
    bar = tag("rect", x=start, y=top + 2, width=max(1.5, stop - start - 0.7), height=LANE - 4, class_=class_)
    return tip(f"{tooltip}{chr(10) + attempt.note if attempt.note else ''}", bar)


def _axis(first: float, last: float, scale: Scale, bottom: float) -> list[Markup]:
    step = next((seconds for seconds in STEPS if (last - first) / seconds <= 8), STEPS[-1])
    parts = [line(TIMELINE_LABEL, bottom, TIMELINE_WIDTH - 14, bottom, "axis")]
    value = 0.0
    while first + value <= last:
        place = scale(first + value)
        parts.append(line(place, bottom, place, bottom + 4, "axis"))
        parts.append(text(place, bottom + 17, _since(value, step), "tick", "middle"))
        value += step
    name = f"since {_moment(first)} UTC"
    parts.append(text((TIMELINE_LABEL + TIMELINE_WIDTH) / 2, bottom + 33, name, "axis-name", "middle"))
    return parts


def _since(seconds: float, step: float) -> str:
    if step < 60:
        return f"{seconds:.0f} s"
    if step < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if step < 86400 else f"{seconds / 86400:.0f} d"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
