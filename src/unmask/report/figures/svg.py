"""Elements of SVG as text, scales and ticks. Knows numbers and names, nothing of results."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 460
"""Of most pictures, in the units of their letters."""


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
    """A group that says something when it is pointed at."""
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
    """From values to places."""

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
    """A range around values with some room, never empty."""
    found = list(values)
    low, high = min(found), max(found)
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
