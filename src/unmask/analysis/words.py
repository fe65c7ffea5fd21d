"""Numbers and lists as sentences and cells have them: few digits, one spelling for what is not known.

Imports nothing. `percent` and `points` carry their unit, for sentences; the functions below them do not, for cells
under a heading that has it.
"""

from collections.abc import Iterable

SHOWN = 12


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage."""
    return f"{share * 100:.{digits}f} %"


def points(difference: float) -> str:
    """A difference of accuracies in percentage points."""
    return f"{in_percent(difference)} points"


def bound_points(difference: float) -> str:
    """A bound that somebody chose, in percentage points as they wrote it."""
    return f"{difference * 100:g} point{'' if round(difference * 100, 9) == 1 else 's'}"


def join_words(names: Iterable[str]) -> str:
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


def level_in_percent(level: float) -> str:
    """How often an interval holds the truth."""
    return f"{level * 100:{'.3g' if level < 0.999 else '.5g'}} %"


NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def in_words(number: int) -> str:
    """A small number as a word, a larger one in digits."""
    return NUMBERS[number] if 0 <= number < len(NUMBERS) else f"{number:,}"


MISSING = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"


def in_percent(share: float | None, digits: int = 1) -> str:
    """A share in percent, without the sign."""
    return MISSING if share is None else signed_minus(f"{share * 100:.{digits}f}")


def span(low: float, high: float) -> str:
    """Two bounds of a share, in percent without the sign."""
    return f"{in_percent(low)} to {in_percent(high)}"


def count(number: float | None) -> str:
    """A whole number with separators."""
    return MISSING if number is None else f"{number:,.0f}"


def times(ratio: float | None, digits: int = 2) -> str:
    """A factor."""
    return MISSING if ratio is None else f"{ratio:.{digits}f}"


def rate(speed: float | None) -> str:
    """Tokens or requests a second, with three figures or so."""
    if speed is None:
        return MISSING
    return f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}" if speed >= 10 else f"{speed:.2f}"


def probability(p_value: float | None) -> str:
    """A p-value."""
    if p_value is None:
        return MISSING
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return MISSING
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.2f} h"


def signed(number: float, digits: int) -> str:
    """A number with its sign, which is typographic; nothing but zero has none."""
    text = f"{abs(number):.{digits}f}"
    return text if not text.strip("0.") else f"{MINUS if number < 0 else '+'}{text}"


def signed_minus(text: str) -> str:
    """A typographic minus, and none before zero."""
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.") else MINUS + text[1:]
    return text
