"""Counted work of results: what was skipped, and what was computed for each token or request."""

from unmask.analysis.records import Entry, Timing


def reuse_fraction(result: Entry | Timing) -> float | None:
    """Share of the layer work that was not done; None where nothing was counted."""
    done = sum(part.branch_rows for part in result.effect.values())
    skipped = sum(part.branch_rows_skipped for part in result.effect.values())
    return skipped / (done + skipped) if done + skipped else None


def flops(result: Entry | Timing) -> float | None:
    """Operations that were carried out; None where nothing was counted."""
    return sum(part.flops for part in result.effect.values()) or None


def units(result: Entry | Timing) -> int | None:
    """What the work was for: tokens when generating, requests when scoring."""
    if isinstance(result, Timing):
        return result.units or None
    if "generation" in result.effect:
        return result.tokens or None
    return sum(part.requests for part in result.effect.values()) or None


def work_ratio(control: Entry | Timing, result: Entry | Timing) -> float | None:
    """Operations for each token (or request), as a multiple of the control's."""
    before, after = flops(control), flops(result)
    count, other = units(control), units(result)
    if not (before and after and count and other):
        return None
    return (after / other) / (before / count)
