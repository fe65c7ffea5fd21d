"""Means over subtasks as lm-eval forms them, and standard errors for samples that come in clusters."""

import math
from collections.abc import Hashable, Sequence

import numpy as np

from unmask.analysis.statistics.intervals import LEVEL, Interval
from unmask.errors import UnmaskError


def group_mean(
    values: Sequence[float],
    errors: Sequence[float | None],
    sizes: Sequence[int],
    weight_by_size: bool = True,
) -> tuple[float, float | None]:
    """Mean and standard error of a group of subtasks, by lm-eval's rules.

    The mean weighs subtasks by their rows, or all alike. The error is lm-eval's pooled one in both cases:
    the variance of a row pooled over subtasks, divided by all rows; None where a subtask has none.
    """
    if not len(values) == len(errors) == len(sizes) or not values or min(sizes) < 1:
        raise UnmaskError("A group needs subtasks, each with a value, an error and at least one row.")
    weights = list(sizes) if weight_by_size else [1] * len(sizes)
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or sum(sizes) == len(sizes):
        return mean, None
    # A subtask's stderr is sqrt(variance / size), so its variance is size * stderr^2.
    pooled = sum((n - 1) * n * e * e for n, e in zip(sizes, known, strict=True)) / (sum(sizes) - len(sizes))
    return mean, math.sqrt(pooled / sum(sizes))


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
