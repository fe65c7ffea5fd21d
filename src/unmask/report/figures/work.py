"""Work saved against speed gained: how much of what is not computed shows on the clock."""

from markupsafe import Markup

from unmask.report.document import TaskPart
from unmask.report.figures.axes import Frame, Label, labels, marker
from unmask.report.figures.svg import WIDTH, Scale, line, padded, picture, tip
from unmask.report.numbers import TIMES, percent, times

HEIGHT = 320


def work_plot(task: TaskPart) -> Markup | None:
    """Speed-up over operations saved; on the diagonal all saved work becomes speed."""
    found = [(one, 1 / one.work, one.speedup) for one in task.lines if one.work and one.speedup is not None]
    if not found:
        return None
    gains = [1.0, *(gain for _, gain, _ in found)]
    speeds = [1.0, *(speed.value for _, _, speed in found)]
    speeds += [bound for _, _, speed in found if speed.bounded for bound in (speed.low, speed.high)]
    low, high = padded([*gains, *speeds], 0.06, 0.02)
    frame = Frame(Scale(low, high, 52, WIDTH - 22), Scale(low, high, HEIGHT - 48, 30))
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
    for one, gain, speed in found:
        x, y = frame.x(gain), frame.y(speed.value)
        if speed.bounded:
            parts.append(line(x, frame.y(speed.low), x, frame.y(speed.high), "error-bar"))
        told = (
            f"{one.name}: {times(gain)} times fewer operations a token, {times(speed.value)} times as fast "
            f"({speed.bounds}), {percent(one.skipped)} % of the layer work skipped"
        )
        class_ = "mark reuse" if one.skipped else "mark plain"
        parts.append(tip(told, marker(x, y, "disc" if one.skipped else "diamond", class_), class_="spot"))
        near = next((spot for spot in spots if abs(spot.x - x) < 3 and abs(spot.y - y) < 6), None)
        if near is None:
            spots.append(Label(x, y, one.name))
        else:
            name, _, more = near.content.partition(" +")
            near.content = f"{name} +{int(more or 0) + 1}"
    parts += labels(spots, frame)
    return picture(WIDTH, HEIGHT, f"Speed-up against operations saved on {task.name}", parts, "work")
