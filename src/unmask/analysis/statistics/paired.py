"""Two configurations on the same samples: who answers which samples right, and what the difference is."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.analysis.statistics.bootstrap import FEWEST, paired_bootstrap
from unmask.analysis.statistics.groups import clustered_interval
from unmask.analysis.statistics.intervals import LEVEL, Interval, mean_interval
from unmask.analysis.statistics.tango import paired_interval
from unmask.errors import UnmaskError


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
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    change = two - one
    binary = bool(np.isin(one, (0.0, 1.0)).all() and np.isin(two, (0.0, 1.0)).all())
    counts = _counts(one, two) if binary else None
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
