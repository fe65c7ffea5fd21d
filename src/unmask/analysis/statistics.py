"""Statistics of accuracies: plain functions of numbers. Knows nothing of runs, stores or policies.

In this order: intervals of one proportion and of one mean; samples in clusters; the difference of two
configurations on the same samples (an interval and the p-value of the same test) and on different samples; many
comparisons; how many samples a difference needs. scipy is imported late because it takes more than a second.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.errors import UnmaskError

LEVEL = 0.95
"""Of every interval, unless the caller says otherwise."""
_STANDARD = NormalDist()


def quantile(probability: float) -> float:
    """The value that a standard normal variable stays below with this probability."""
    return _STANDARD.inv_cdf(probability)


def two_sided(level: float) -> float:
    """How many standard errors an interval of this level reaches to either side."""
    return quantile(0.5 + level / 2)


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


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Standard error of a mean when the samples of a cluster move together.

    Sum of the squared totals of the residuals of each cluster (Liang and Zeger, Biometrika 73, 1986,
    13-22; for evaluations: Miller, arXiv:2411.00640), with the factor G / (G - 1) for G clusters.
    """
    if len(values) != len(clusters):
        raise UnmaskError("Every sample needs a cluster.")
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters])
    if len(numbers) < 2:
        raise UnmaskError("A clustered error needs at least two clusters.")
    array = np.asarray(values, dtype=float)
    totals = np.bincount(index, weights=array - array.mean())
    factor = len(numbers) / (len(numbers) - 1)
    return math.sqrt(factor * float(np.sum(totals**2))) / len(array)


def clustered_interval(
    values: Sequence[float], clusters: Sequence[Hashable], level: float = LEVEL
) -> Interval:
    """Interval of a mean from its clustered error, with Student's quantile of G - 1 degrees of freedom."""
    from scipy.stats import t

    error = clustered_error(values, clusters)
    half = float(t.ppf(0.5 + level / 2, len(set(clusters)) - 1)) * error
    centre = float(np.mean(values))
    return Interval(max(-1.0, centre - half), min(1.0, centre + half), level, "clustered")


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
        statistic = distance / np.sqrt(np.maximum(variance, 0))
    without_variance: NDArray[np.float64] = np.where(np.isnan(statistic), 0.0, statistic)
    return without_variance


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """McNemar's table."""

    both: int
    lost: int
    """Right only with the first configuration."""
    gained: int
    """Right only with the second."""
    neither: int

    @property
    def count(self) -> int:
        """All samples."""
        return self.both + self.lost + self.gained + self.neither

    @property
    def discordant(self) -> float:
        """Share of the samples on which the two differ."""
        return (self.lost + self.gained) / self.count


@dataclass(frozen=True, slots=True)
class Difference:
    """The second configuration's accuracy minus the first's."""

    value: float
    count: int
    interval: Interval
    """From the lowest to the highest bound of the intervals that its method names."""
    counts: PairedCounts | None
    """None where a row's value is not just right or wrong."""
    p_value: float
    """The largest of the tests that these intervals invert: below 1 - level exactly where the interval excludes 0."""


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value (McNemar, Psychometrika 12, 1947; a binomial test of the discordant samples)."""
    from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0


def mcnemar_score(gained: int, lost: int) -> float:
    """The same by the normal approximation without a correction, which Tango's interval inverts."""
    return 2 * _STANDARD.cdf(-abs(gained - lost) / math.sqrt(gained + lost)) if gained + lost else 1.0


def exact_interval(gained: int, lost: int, count: int, level: float = LEVEL) -> Interval:
    """What the exact test does not exclude, given how many samples changed (Clopper and Pearson, Biometrika 26, 1934).

    It excludes 0 exactly when that test does, but takes the share of changed samples for known.
    """
    from scipy.stats import beta

    changed, tail = gained + lost, (1 - level) / 2
    low = float(beta.ppf(tail, gained, lost + 1)) if gained else 0.0
    high = float(beta.ppf(1 - tail, gained + 1, lost)) if lost else 1.0
    share = changed / count
    return Interval(share * (2 * low - 1), share * (2 * high - 1), level, "exact")


def student(mean: float, error: float, freedom: int) -> float:
    """Two-sided p-value of a mean with an estimated error."""
    from scipy.stats import t

    if not error:
        return 1.0 if not mean else 0.0
    return 2 * float(t.sf(abs(mean) / error, freedom))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
) -> Difference:
    """Compare two configurations row by row; rows must be the same, in the same order."""
    if len(first) != len(second):
        raise UnmaskError(f"{len(first)} rows cannot be paired with {len(second)}; compare the same rows.")
    if not len(first):
        raise UnmaskError("There are no rows to compare.")
    before, after = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    change = after - before
    binary = bool(np.isin(before, (0.0, 1.0)).all() and np.isin(after, (0.0, 1.0)).all())
    counts = _counts(before, after) if binary else None
    tests = [_plain_test(change, counts, level)]
    if counts is not None:
        exact = exact_interval(counts.gained, counts.lost, counts.count, level)
        tests.append((exact, mcnemar(counts.gained, counts.lost)))
    if clusters is not None and len(set(clusters)) > 1 and change.any():
        tests.append(_clustered_test(change, clusters, level))
    # The widest bounds and the largest p-value belong together: 0 is outside of the whole where it is outside of each.
    intervals = [interval for interval, _ in tests]
    bounds = min(each.low for each in intervals), max(each.high for each in intervals)
    return Difference(
        value=float(change.mean()),
        count=len(change),
        interval=Interval(*bounds, level, ", ".join(each.method for each in intervals)),
        counts=counts,
        p_value=max(p_value for _, p_value in tests),
    )


def _plain_test(
    change: NDArray[np.float64], counts: PairedCounts | None, level: float
) -> tuple[Interval, float]:
    """Interval and p-value of a mean change, of rows that are independent."""
    count = len(change)
    if counts is not None:
        interval = paired_interval(counts.gained, counts.lost, count, level)
        return interval, mcnemar_score(counts.gained, counts.lost)
    if count < 2:
        return Interval(-1.0, 1.0, level, "one row"), 1.0
    if not change.any():
        # Where nothing has changed there is no spread to learn from.
        return paired_interval(0, 0, count, level), 1.0
    error = float(change.std(ddof=1)) / math.sqrt(count)
    return mean_interval(change.tolist(), level), student(float(change.mean()), error, count - 1)


def _clustered_test(
    change: NDArray[np.float64], clusters: Sequence[Hashable], level: float
) -> tuple[Interval, float]:
    """The same of rows in clusters."""
    values = change.tolist()
    error, freedom = clustered_error(values, clusters), len(set(clusters)) - 1
    return clustered_interval(values, clusters, level), student(float(change.mean()), error, freedom)


def _counts(first: NDArray[np.float64], second: NDArray[np.float64]) -> PairedCounts:
    both = int(np.sum((first == 1) & (second == 1)))
    return PairedCounts(
        both=both,
        lost=int(first.sum()) - both,
        gained=int(second.sum()) - both,
        neither=int(np.sum((first == 0) & (second == 0))),
    )


def unpaired_interval(
    first: float, first_count: int, second: float, second_count: int, level: float = LEVEL
) -> Interval:
    """Interval of second minus first, from two accuracies and their sample counts.

    Hybrid score interval (Newcombe, Statistics in Medicine 17, 1998, 873-890, method 10). On samples
    that are in truth the same it is wider than a paired interval: the samples' own difficulty counts twice.
    """
    before = wilson(first * first_count, first_count, level)
    after = wilson(second * second_count, second_count, level)
    difference = second - first
    down = math.hypot(second - after.low, before.high - first)
    up = math.hypot(after.high - second, first - before.low)
    return Interval(max(-1.0, difference - down), min(1.0, difference + up), level, "Newcombe")


def bonferroni(p_value: float, comparisons: int) -> float:
    """A p-value corrected for the number of comparisons, as `bonferroni_level` corrects intervals."""
    return min(1.0, p_value * max(1, comparisons))


def bonferroni_level(level: float, comparisons: int) -> float:
    """The level at which each of several intervals must hold for all of them to hold together at `level`."""
    return 1 - (1 - level) / max(1, comparisons)


POWER = 0.8
ACCURACY = 0.8
"""Assumed where nothing has been measured: the first published baseline's."""
AGREEMENT = 0.5
"""Paired answers disagree about half as often as independent ones would."""
FEW = 200
"""Rows below which a measured share of changed rows is not taken for the truth."""


def independent_discordance(accuracy: float, difference: float) -> float:
    """Share of samples that two configurations disagree on if they err independently: the careful assumption."""
    other = accuracy - difference
    return accuracy * (1 - other) + other * (1 - accuracy)


def assumed_discordance() -> float:
    """Share of samples that two configurations are taken to disagree on before anything is measured."""
    return AGREEMENT * independent_discordance(ACCURACY, 0.0)


def careful_discordance(measured: float, count: int) -> float:
    """A measured share of changed samples; from few samples it is at least the assumed one."""
    return max(measured, assumed_discordance()) if count < FEW else measured


def samples_for_margin(margin: float, discordant: float, level: float = LEVEL, power: float = POWER) -> int:
    """Samples at which, if nothing is lost in truth, the interval of the paired drop ends below `margin`.

    The variance at the margin is the restricted one that the score interval uses: Nam, Biometrics 53, 1997,
    1422-1430; Liu, Hsueh, Hsieh and Chen, Statistics in Medicine 21, 2002, 231-245.
    """
    if not (0 < margin <= 1 and 0 <= discordant <= 1):
        raise UnmaskError(f"A margin of {margin:g} and a changed share of {discordant:g} must lie in 0 to 1.")
    at_margin = math.sqrt(_restricted_variance(discordant, -margin))
    spread = two_sided(level) * at_margin + quantile(power) * math.sqrt(discordant)
    return max(1, math.ceil(spread**2 / margin**2))


def smallest_margin(count: int, discordant: float, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest margin that `count` samples can show a loss to stay within."""
    # At a margin of 1 the variance is 0, so that one sample is enough.
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle and samples_for_margin(middle, discordant, level, power) <= count:
            high = middle
        else:
            low = middle
    return high


def _restricted_variance(discordant: float, difference: float) -> float:
    """Variance of a sample's change at the likeliest shares, if equally many are gained and lost in truth."""
    b = 2 * difference - discordant
    c = -discordant / 2 * difference * (1 - difference)
    lost = (math.sqrt(b * b - 8 * c) - b) / 4
    # Rounding may leave a little less than nothing at the widest margin.
    return max(0.0, 2 * lost + difference * (1 - difference))
