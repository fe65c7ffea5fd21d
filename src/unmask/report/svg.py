"""Inline SVG as text: elements, scales, ticks, the frame of a plot, and labels that keep out of each other's way.

Knows numbers and names, nothing of results. Colours come from the page's style sheet. Every picture is drawn about
as wide as a phone, so that its letters stay readable there; wide screens put several side by side.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 460
"""Width of most pictures, in the units of their letters."""


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element; `_` in names of attributes becomes `-`, `class_` is `class`, None leaves one out."""
    pairs = (
        f' {key.removesuffix("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(str(child if isinstance(child, Markup) else escape(child)) for child in children)
    return Markup(f"<{name}{''.join(pairs)}>{inner}</{name}>")


def picture(width: float, height: float, title: str, parts: Iterable[str], class_: str = "") -> Markup:
    """A whole picture with its title for those who do not see it."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {_text(width)} {_text(height)}",
        role="img",
        aria_label=title,
        class_=f"picture {class_}".strip(),
    )


def tip(text: str, *children: str, **attributes: object) -> Markup:
    """A group of elements with a text that is shown when the pointer is over it."""
    return tag("g", *children, data_tip=text, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    steps = " ".join(f"{'L' if number else 'M'}{_text(x)} {_text(y)}" for number, (x, y) in enumerate(points))
    return tag("path", d=steps, class_=class_)


def text(x: float, y: float, content: str, class_: str = "", anchor: str = "start") -> Markup:
    """A label."""
    return tag("text", content, x=x, y=y, class_=class_ or None, text_anchor=anchor)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions in a picture."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Where a value is drawn."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside, about so many."""
        return ticks(self.low, self.high, count)


def padded(values: Iterable[float], share: float = 0.08, least: float = 0.02) -> tuple[float, float]:
    """A range that holds all values, with some room around them; never empty."""
    known = list(values)
    low, high = min(known), max(known)
    room = max((high - low) * share, least)
    return low - room, high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two others: steps of 1, 2 or 5."""
    if high <= low:
        return [low]
    raw = (high - low) / max(1, count)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _text(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


LETTER = 6.1
"""Mean width of a letter of a label."""
LABEL_HEIGHT = 13.0


@dataclass(frozen=True, slots=True)
class PlotFrame:
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


def labels(wanted: list[Label], frame: PlotFrame, class_: str = "label") -> Iterator[Markup]:
    """Labels beside their points, moved up or down where they would overlap, on the left where the right is full."""
    for label in wanted:
        label.at = label.y
    top, bottom = frame.y.stop + 6, frame.y.start - 4
    placed: list[tuple[float, float, float]] = []
    for label in sorted(wanted, key=lambda label: label.y):
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
