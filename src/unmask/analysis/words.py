"""Numbers and lists as sentences have them."""

from collections.abc import Iterable

from unmask.analysis.statistics import Interval

SHOWN = 12


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage."""
    return f"{share * 100:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of accuracies in percentage points."""
    return f"{in_points(difference)} points"


def in_points(difference: float) -> str:
    """The bare number of percentage points; never a negative zero."""
    return f"{round(difference * 100, 1) + 0.0:.1f}"


def span(interval: Interval) -> str:
    """An interval of accuracies in percentage points."""
    return f"{in_points(interval.low)} to {in_points(interval.high)} points"


def listed(names: Iterable[str]) -> str:
    """Names without repetition, the first dozen of them."""
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - SHOWN} more" if len(unique) > SHOWN else ""
    return ", ".join(unique[:SHOWN]) + more


def between(values: Iterable[float], form: str = "{:g}") -> str:
    """The range of some values, or the one value they share."""
    ordered = sorted(values)
    low, high = form.format(ordered[0]), form.format(ordered[-1])
    return low if low == high else f"{low} to {high}"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """A number and its noun, in the plural where it needs one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"
