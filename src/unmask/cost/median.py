"""The median of a few measurements and the bounds it lies between, whatever their distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """Two of the measured values between which the median lies."""

    low: float
    high: float
    coverage: float
    """Probability that it does, whatever the distribution; few values cannot reach 0.95."""


def median_interval(values: Sequence[float], level: float = 0.95) -> MedianInterval:
    """The narrowest pair of order statistics that covers the median with probability `level`."""
    ordered, n = sorted(values), len(values)
    rank, outside = 1, 2 * 0.5**n
    for candidate in range(2, n // 2 + 1):
        tail = 2 * sum(math.comb(n, k) for k in range(candidate)) * 0.5**n
        if 1 - tail < level:
            break
        rank, outside = candidate, tail
    return MedianInterval(ordered[rank - 1], ordered[n - rank], max(0.0, 1 - outside))
