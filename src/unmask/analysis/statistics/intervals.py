"""An interval, and those of one proportion and one mean. Needs nothing that is slow to import."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from unmask.analysis.statistics.normal import two_sided
from unmask.errors import UnmaskError

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Two bounds, how often such bounds hold the truth, and the method's name."""

    low: float
    high: float
    level: float
    method: str

    def holds(self, value: float) -> bool:
        """Whether a value lies inside."""
        return self.low <= value <= self.high


def wilson(successes: float, count: int, level: float = LEVEL) -> Interval:
    """Score interval of a proportion (Wilson, J. Am. Stat. Assoc. 22, 1927, 209-212)."""
    if not 0 <= successes <= count or count < 1:
        raise UnmaskError(f"{successes} of {count} is no proportion; count at least one sample.")
    z = two_sided(level)
    share, weight = successes / count, z * z / count
    centre = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / count + weight / (4 * count)) / (1 + weight)
    return Interval(max(0.0, centre - half), min(1.0, centre + half), level, "Wilson")


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's interval of a mean, for values that are not just right or wrong."""
    from scipy.stats import t

    if len(values) < 2:
        raise UnmaskError("One value has no spread; an interval of a mean needs at least two.")
    centre, count = fmean(values), len(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    half = float(t.ppf(0.5 + level / 2, count - 1)) * math.sqrt(variance / count)
    return Interval(centre - half, centre + half, level, "Student")
