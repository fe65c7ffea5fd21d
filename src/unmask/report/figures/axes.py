"""The frame of a plot: two axes with ticks and names, and labels that keep out of each other's way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from unmask.report.figures.svg import Scale, line, tag, text

LETTER = 6.1
"""Mean width of a letter of a label."""
LABEL_HEIGHT = 13.0


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a plot's axes lie."""

    x: Scale
    y: Scale

    def axes(
        self,
        x_name: str,
        y_name: str,
        x_text: Callable[[float], str],
        y_text: Callable[[float], str],
    ) -> Iterator[Markup]:
        """Lines, ticks and names."""
        left, right, bottom, top = self.x.start, self.x.stop, self.y.start, self.y.stop
        for value in self.y.ticks(5):
            place = self.y(value)
            yield line(left, place, right, place, "grid")
            yield text(left - 7, place + 4, y_text(value), "tick", "end")
        for value in self.x.ticks(5):
            place = self.x(value)
            yield line(place, bottom, place, bottom + 4, "axis")
            yield text(place, bottom + 17, x_text(value), "tick", "middle")
        yield line(left, bottom, right, bottom, "axis")
        yield text((left + right) / 2, bottom + 35, x_name, "axis-name", "middle")
        yield text(left - 38, top - 12, y_name, "axis-name")


@dataclass(slots=True)
class Label:
    """A label beside a point."""

    x: float
    y: float
    content: str
    at: float = 0.0
    """Height at which it is drawn."""


def labels(found: list[Label], frame: Frame, class_: str = "label") -> Iterator[Markup]:
    """Labels beside their points, moved up or down where they would overlap, on the left where the right is full."""
    for label in found:
        label.at = label.y
    top, bottom = frame.y.stop + 6, frame.y.start - 4
    placed: list[tuple[float, float, float]] = []
    for label in sorted(found, key=lambda one: one.y):
        width = len(label.content) * LETTER
        on_right = label.x + 9 + width <= frame.x.stop + 18
        start = label.x + 9 if on_right else label.x - 9 - width
        label.at = _free(placed, start, start + width, label.y, top, bottom)
        placed.append((start, start + width, label.at))
        if abs(label.at - label.y) > LABEL_HEIGHT * 0.7:
            yield line(label.x, label.y, start + (0 if on_right else width), label.at, "leader")
        yield text(
            start if on_right else start + width,
            label.at + 4,
            label.content,
            class_,
            "start" if on_right else "end",
        )


def _free(
    placed: list[tuple[float, float, float]],
    start: float,
    stop: float,
    wanted: float,
    top: float,
    bottom: float,
) -> float:
    """The height nearest to the wanted one at which nothing is in the way."""
    for distance in range(30):
        for sign in (1, -1):
            at = wanted + sign * distance * LABEL_HEIGHT / 2
            inside = top <= at <= bottom or distance == 0
            clear = all(abs(at - y) >= LABEL_HEIGHT or stop < a or start > b for a, b, y in placed)
            if inside and clear:
                return at
    return wanted


def marker(x: float, y: float, kind: str, class_: str) -> Markup:
    """A point: a disc, a diamond or a square."""
    if kind == "diamond":
        corners = f"{x:.1f},{y - 6:.1f} {x + 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f} {x - 6:.1f},{y:.1f}"
        return tag("polygon", points=corners, class_=class_)
    if kind == "square":
        return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_=class_)
    return tag("circle", cx=x, cy=y, r=5, class_=class_)
