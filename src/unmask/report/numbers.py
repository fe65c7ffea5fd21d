"""Numbers as tables have them: few digits, one spelling for what is not known. No units where a heading has them."""

MISSING = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent, without the sign."""
    return MISSING if share is None else signed_minus(f"{share * 100:.{digits}f}")


def span(low: float, high: float, digits: int = 1, factor: float = 100.0) -> str:
    """Two bounds; percent unless told otherwise."""
    return f"{signed_minus(f'{low * factor:.{digits}f}')} to {signed_minus(f'{high * factor:.{digits}f}')}"


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


def signed_minus(text: str) -> str:
    """A typographic minus, and none before zero."""
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.") else MINUS + text[1:]
    return text
