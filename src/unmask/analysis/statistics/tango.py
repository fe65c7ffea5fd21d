"""The difference of two proportions measured on the same samples, by its score interval."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.analysis.statistics.intervals import LEVEL, Interval
from unmask.analysis.statistics.normal import two_sided
from unmask.errors import UnmaskError

BISECTIONS = 60
"""Halvings of [-1, 1]: more than a double can tell apart."""


def paired_interval(gained: int, lost: int, count: int, level: float = LEVEL) -> Interval:
    """Score interval of the difference of two proportions measured on the same samples.

    `gained` samples are right only the second time, `lost` only the first; the difference is second
    minus first. Tango, Statistics in Medicine 17, 1998, 891-908; it excludes 0 exactly when McNemar's
    test without continuity correction does.
    """
    if min(gained, lost) < 0 or gained + lost > count or count < 1:
        raise UnmaskError(f"{gained} gained and {lost} lost of {count} samples cannot be.")
    low, high = paired_bounds([gained], [lost], count, level)
    return Interval(float(low[0]), float(high[0]), level, "Tango")


def paired_bounds(
    gained: ArrayLike, lost: ArrayLike, count: int, level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The bounds of `paired_interval` for many pairs of counts at once."""
    plus, minus = np.asarray(gained, dtype=float), np.asarray(lost, dtype=float)
    z = two_sided(level)
    low = _crossing(plus, minus, count, z)
    high = _crossing(plus, minus, count, -z)
    # The root lies at the edge of the parameter space when every sample changed to the same side.
    return np.where(minus == count, -1.0, low), np.where(plus == count, 1.0, high)


def _crossing(plus: NDArray[np.float64], minus: NDArray[np.float64], n: int, z: float) -> NDArray[np.float64]:
    """Where the score statistic, which falls as the difference rises, equals z."""
    below, above = np.full(plus.shape, -1.0), np.full(plus.shape, 1.0)
    for _ in range(BISECTIONS):
        middle = (below + above) / 2
        smaller = _score(plus, minus, n, middle) > z
        below, above = np.where(smaller, middle, below), np.where(smaller, above, middle)
    root: NDArray[np.float64] = (below + above) / 2
    return root


def _score(
    plus: NDArray[np.float64], minus: NDArray[np.float64], n: int, difference: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distance from a difference in standard errors, at the likeliest share of losses given that difference."""
    a = 2.0 * n
    b = -plus - minus + (2 * n - plus + minus) * difference
    c = -minus * difference * (1 - difference)
    losses = (np.sqrt(np.maximum(b * b - 4 * a * c, 0)) - b) / (2 * a)
    variance = n * (2 * losses + difference * (1 - difference))
    distance = plus - minus - n * difference
    with np.errstate(divide="ignore", invalid="ignore"):
        found = distance / np.sqrt(np.maximum(variance, 0))
    without_variance: NDArray[np.float64] = np.where(np.isnan(found), 0.0, found)
    return without_variance
