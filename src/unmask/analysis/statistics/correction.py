"""Many comparisons at once: p-values and levels that stay honest."""

from collections.abc import Sequence


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
