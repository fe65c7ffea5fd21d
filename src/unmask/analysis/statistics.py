"""Statistics of accuracies: plain functions of numbers. Knows nothing of runs, stores or policies.

In this order: intervals of one proportion and of one mean; samples in clusters; the difference of two
configurations on the same samples (score interval, bootstrap, exact test) and on different samples; many comparisons;
how many samples a difference needs. scipy is imported late because it takes more than a second.
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


FEWEST = 50
"""Below this number of samples (or clusters) the bootstrap is refused: its intervals are then too narrow."""
RESAMPLES = 10_000
FEW_KINDS = 16
"""Distinct values up to which they are counted; right and wrong give three."""
CHUNK = 4_000_000
"""Draws held in memory at once."""


def paired_bootstrap(
    differences: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """Percentile interval of the mean difference (Efron and Tibshirani, An Introduction to the Bootstrap, 1993)."""
    values = np.asarray(differences, dtype=float)
    sums, sizes = _totals(values, clusters)
    if len(sums) < FEWEST:
        what = "samples" if clusters is None else "clusters"
        raise UnmaskError(
            f"The bootstrap needs at least {FEWEST} {what}; there are {len(sums)}. Use the score interval."
        )
    means = _resampled(sums, sizes, np.random.default_rng(seed), resamples)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high), level, f"bootstrap, seed {seed}")


def _totals(
    values: NDArray[np.float64], clusters: Sequence[Hashable] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and number of the values of each unit that is drawn."""
    if clusters is None:
        return values, np.ones(len(values))
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters])
    return np.bincount(index, weights=values).astype(float), np.bincount(index).astype(float)


def _resampled(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], random: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    kinds, counts = np.unique(sums, return_counts=True)
    if len(kinds) <= FEW_KINDS and np.all(sizes == 1):
        # How often each value is drawn is all that matters, and far quicker to draw.
        drawn = random.multinomial(len(sums), counts / len(sums), size=resamples)
        means_of_counts: NDArray[np.float64] = drawn @ kinds / len(sums)
        return means_of_counts
    means, step = [], max(1, CHUNK // len(sums))
    for start in range(0, resamples, step):
        index = random.integers(len(sums), size=(min(step, resamples - start), len(sums)))
        means.append(sums[index].sum(axis=1) / sizes[index].sum(axis=1))
    return np.concatenate(means)


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
    """The score interval; with clusters the clustered one; Student's where rows are not right or wrong."""
    bootstrap: Interval | None
    """None with too few samples for it."""
    counts: PairedCounts | None
    """None where a row's value is not just right or wrong."""
    p_value: float | None
    """Exact McNemar test that the two are equally accurate."""


def mcnemar(counts: PairedCounts) -> float:
    """Exact two-sided p-value (McNemar, Psychometrika 12, 1947; a binomial test of the discordant samples)."""
    from scipy.stats import binomtest

    changed = counts.lost + counts.gained
    return float(binomtest(counts.gained, changed, 0.5).pvalue) if changed else 1.0


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
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
    if clusters is not None and len(set(clusters)) > 1:
        interval = clustered_interval(change.tolist(), clusters, level)
    elif counts is not None:
        interval = paired_interval(counts.gained, counts.lost, counts.count, level)
    else:
        interval = mean_interval(change.tolist(), level)
    drawn = len(change) if clusters is None else len(set(clusters))
    return Difference(
        value=float(change.mean()),
        count=len(change),
        interval=interval,
        bootstrap=paired_bootstrap(change.tolist(), clusters, seed, level=level) if drawn >= FEWEST else None,
        counts=counts,
        p_value=mcnemar(counts) if counts is not None else None,
    )


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


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values by Holm's step-down method (Scandinavian Journal of Statistics 6, 1979, 65-70)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


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
