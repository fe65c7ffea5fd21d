"""The paired bootstrap with a stated seed; whole clusters are drawn where samples come in clusters."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from unmask.analysis.statistics.intervals import LEVEL, Interval
from unmask.errors import UnmaskError

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
        found: NDArray[np.float64] = drawn @ kinds / len(sums)
        return found
    means, step = [], max(1, CHUNK // len(sums))
    for start in range(0, resamples, step):
        index = random.integers(len(sums), size=(min(step, resamples - start), len(sums)))
        means.append(sums[index].sum(axis=1) / sizes[index].sum(axis=1))
    return np.concatenate(means)
