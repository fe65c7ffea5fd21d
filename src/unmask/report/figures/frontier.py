"""Accuracy against speed-up, or against operations saved: who is worth having, with the threshold curve."""

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from unmask.analysis.frontier import Point
from unmask.analysis.words import listed
from unmask.report.document import Line, TaskPart
from unmask.report.figures.axes import Frame, Label, labels, marker
from unmask.report.figures.svg import WIDTH, Scale, line, padded, path, picture, tip
from unmask.report.numbers import TIMES, percent, span

HEIGHT = 320
FEW = 16
"""Points up to which all are labelled."""
NAMES = {
    "speed": f"speed-up over the control ({TIMES})",
    "work": f"operations a token, control ÷ configuration ({TIMES})",
}


def frontier_plot(task: TaskPart, points: Sequence[Point]) -> Markup | None:
    """The plane of accuracy and gain; None with fewer than two points."""
    if len(points) < 2:
        return None
    lines = {line_.name: line_ for line_ in task.lines}
    frame = Frame(
        Scale(*padded(_gains(points), 0.12, 0.02), 52, WIDTH - 22),
        Scale(*padded(_accuracies(points, lines), 0.06, 0.01), HEIGHT - 48, 30),
    )
    axis = points[0].axis
    parts: list[Markup] = [
        *frame.axes(NAMES[axis], "accuracy (%)", lambda value: f"{value:g}", lambda value: percent(value, 0)),
        *_criterion(task, points, frame),
        *_staircase(points, frame),
        *_curve(points, frame),
        *(part for point in points for part in _bars(point, lines[point.configuration], frame)),
    ]
    spots = _spots(points, frame)
    parts += [_mark(spot, lines, frame, task) for spot in spots]
    named = [spot for spot in spots if len(points) <= FEW or _counts(spot, task)]
    parts += labels([_label(spot, frame, task) for spot in named], frame)
    title = f"Accuracy against {NAMES[axis]} on {task.name}: not dominated are "
    return picture(
        WIDTH,
        HEIGHT,
        title + listed(p.configuration for p in points if not p.dominated_by),
        parts,
        "frontier",
    )


def _gains(points: Iterable[Point]) -> Iterator[float]:
    for point in points:
        yield point.gain
        if point.axis == "speed" and point.speedup:
            yield from (point.speedup.low, point.speedup.high) if point.speedup.bounded else ()


def _accuracies(points: Iterable[Point], lines: dict[str, Line]) -> Iterator[float]:
    for point in points:
        yield point.accuracy
        bounds = lines[point.configuration].interval
        if bounds is not None:
            yield from (bounds.low, bounds.high)


def _criterion(task: TaskPart, points: Sequence[Point], frame: Frame) -> Iterator[Markup]:
    """Where a configuration would have to lie to confirm the hypothesis."""
    success = task.group.experiment.success
    if success is None or success.task != task.group.task or points[0].axis != "speed" or not task.control:
        return
    x, y = frame.x(success.confirm.speedup), frame.y(task.control.value - success.confirm.drop)
    right, top = frame.x.stop, frame.y.stop
    if x < right and y > top:
        left, low = max(x, frame.x.start), min(y, frame.y.start)
        yield tip(
            f"asked for: faster than {success.confirm.speedup:g} times, losing less than "
            f"{percent(success.confirm.drop)} points",
            path([(left, top), (right, top), (right, low), (left, low)], "goal"),
            line(left, top, left, low, "goal-edge"),
            line(left, low, right, low, "goal-edge"),
        )


def _staircase(points: Sequence[Point], frame: Frame) -> Iterator[Markup]:
    """The frontier itself: up to here an accuracy can be had."""
    kept = sorted((p for p in points if not p.dominated_by), key=lambda p: p.gain)
    steps: list[tuple[float, float]] = []
    for point in kept:
        x, y = frame.x(point.gain), frame.y(point.accuracy)
        if steps:
            steps.append((steps[-1][0], y))
        steps.append((x, y))
    if len(steps) > 1:
        yield path(steps, "staircase")


def _curve(points: Sequence[Point], frame: Frame) -> Iterator[Markup]:
    curve = sorted((p for p in points if p.threshold is not None), key=lambda p: p.gain)
    if len({p.threshold for p in curve}) > 1:
        yield path([(frame.x(p.gain), frame.y(p.accuracy)) for p in curve], "threshold-curve")


def _bars(point: Point, line_: Line, frame: Frame) -> Iterator[Markup]:
    x, y = frame.x(point.gain), frame.y(point.accuracy)
    bounds = line_.interval
    if bounds is not None:
        yield line(x, frame.y(bounds.low), x, frame.y(bounds.high), "error-bar")
    if point.axis == "speed" and point.speedup and point.speedup.bounded:
        yield line(frame.x(point.speedup.low), y, frame.x(point.speedup.high), y, "error-bar")


def _spots(points: Sequence[Point], frame: Frame) -> list[list[Point]]:
    """Points that fall on one place share a mark and a label."""
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


def _mark(spot: list[Point], lines: dict[str, Line], frame: Frame, task: TaskPart) -> Markup:
    point = spot[0]
    is_control = any(task.control is not None and p.configuration == task.control.configuration for p in spot)
    kind = "square" if is_control else "diamond" if not point.acts else "disc"
    kept = any(not p.dominated_by for p in spot)
    class_ = f"mark {'reuse' if point.acts else 'plain'}{'' if kept else ' dominated'}"
    return tip(
        "\n".join(_told(p, lines[p.configuration]) for p in spot),
        marker(frame.x(point.gain), frame.y(point.accuracy), kind, class_),
        class_="spot",
    )


def _told(point: Point, line_: Line) -> str:
    told = f"{point.configuration}: {percent(point.accuracy)} %, {point.gain:.2f} times"
    if point.loss is not None:
        bounds = point.loss.interval
        told += f", loses {percent(point.loss.value)} points ({span(bounds.low, bounds.high)})"
    if line_.skipped:
        told += f", {percent(line_.skipped)} % of the layer work skipped"
    if point.dominated_by:
        told += f"; {'surely ' if point.certainly else ''}dominated by {listed(point.dominated_by[:3])}"
    return told


def _counts(spot: list[Point], task: TaskPart) -> bool:
    return any(
        not point.dominated_by
        or point.threshold is not None
        or (task.control is not None and point.configuration == task.control.configuration)
        for point in spot
    )


def _label(spot: list[Point], frame: Frame, task: TaskPart) -> Label:
    names = [point.configuration for point in spot]
    control = task.control.configuration if task.control else None
    names.sort(key=lambda name: name != control)
    content = names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"
    return Label(frame.x(spot[0].gain), frame.y(spot[0].accuracy), content)
