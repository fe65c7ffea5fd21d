"""Simulated experiments: a 95 % interval holds the truth in 93 to 97 % of them, and power is what it says."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from unmask.analysis.gains import ratio_interval
from unmask.analysis.statistics import (
    clustered_interval,
    independent_discordance,
    mean_interval,
    paired_bounds,
    paired_difference,
    samples_for_margin,
    smallest_margin,
    unpaired_interval,
    wilson,
)
from unmask.errors import UnmaskError

EXPERIMENTS = 4000
ACCURACIES = (0.5, 0.7, 0.8, 0.9, 0.95)
PAIRS = [(200, 0.02, 0.05), (200, 0.08, 0.08), (500, 0.03, 0.10), (1319, 0.05, 0.12), (200, 0.20, 0.20)]
"""Rows, and the shares that are gained and lost."""


def share(low: NDArray[np.float64], high: NDArray[np.float64], truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def each(count: int, interval: Callable[[int], tuple[float, float]], drawn: NDArray[np.int64]) -> list[float]:
    """Bounds of every drawn count, computed once for each."""
    known = {int(value): interval(int(value)) for value in np.unique(drawn)}
    return np.array([known[int(value)] for value in drawn]).T  # type: ignore[return-value]


@pytest.mark.parametrize("count", [200, 500, 1319])
@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_wilson_covers(accuracy: float, count: int) -> None:
    drawn = np.random.default_rng(count).binomial(count, accuracy, EXPERIMENTS)
    low, high = each(count, lambda k: (wilson(k, count).low, wilson(k, count).high), drawn)
    assert 0.93 <= share(low, high, accuracy) <= 0.97


@pytest.mark.parametrize(("count", "gained", "lost"), PAIRS)
def test_tango_covers(count: int, gained: float, lost: float) -> None:
    random = np.random.default_rng(count)
    drawn = random.multinomial(count, [gained, lost, 1 - gained - lost], EXPERIMENTS)
    low, high = paired_bounds(drawn[:, 0], drawn[:, 1], count)
    assert 0.93 <= share(low, high, gained - lost) <= 0.97


@pytest.mark.parametrize(("count", "gained", "lost"), [*PAIRS, (40, 0.1, 0.1), (20, 0.2, 0.1)])
@pytest.mark.parametrize("level", [0.95, 0.995])
def test_a_paired_difference_covers_at_least_as_often_as_it_says(
    count: int, gained: float, lost: float, level: float
) -> None:
    """With few rows, and at the levels that many comparisons need, Tango's interval alone holds too seldom."""
    random = np.random.default_rng(count + 1)
    drawn = random.multinomial(count, [gained, lost, 1 - gained - lost], 4_000)[:, :2]
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    held = 0
    for (plus, minus), times in zip(kinds.tolist(), counts.tolist(), strict=True):
        second = [1.0] * plus + [0.0] * (count - plus)
        first = [0.0] * plus + [1.0] * minus + [0.0] * (count - plus - minus)
        held += times * paired_difference(first, second, level=level).interval.holds(gained - lost)
    assert held / 4_000 >= level - 0.01
    assert count < 200 or held / 4_000 <= 1 - (1 - level) / 8


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.45), (0.8, 0.75), (0.95, 0.9)])
def test_newcombe_covers(first: float, second: float) -> None:
    random, count = np.random.default_rng(5), 300
    one, two = (random.binomial(count, share, 2000) for share in (first, second))
    found = [unpaired_interval(a / count, count, b / count, count) for a, b in zip(one, two, strict=True)]
    low, high = (np.array([getattr(interval, side) for interval in found]) for side in ("low", "high"))
    assert 0.93 <= share(low, high, second - first) <= 0.97


def test_the_clustered_interval_covers_where_the_plain_one_does_not() -> None:
    random, clusters, size = np.random.default_rng(7), 57, 8
    names = np.repeat(np.arange(clusters), size)
    clustered, plain = [], []
    for _ in range(2000):
        shift = np.repeat(random.normal(0, 0.3, clusters), size)
        values = (shift + random.normal(0, 0.6, clusters * size)).tolist()
        found, naive = clustered_interval(values, names.tolist()), mean_interval(values)
        clustered.append(found.holds(0.0))
        plain.append(naive.holds(0.0))
    assert 0.93 <= np.mean(clustered) <= 0.97
    assert np.mean(plain) < 0.88


@pytest.mark.parametrize("rounds", [5, 9, 15])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_speedups_are_covered_at_least_as_often_as_they_say(rounds: int, level: float) -> None:
    random = np.random.default_rng(rounds)
    held = []
    for values in 1.1 * np.exp(random.normal(0, 0.03, (2000, rounds))):
        found = ratio_interval(values.tolist(), level)
        held.append(found.low <= 1.1 <= found.high)
    assert np.mean(held) >= level - 0.012


@pytest.mark.parametrize(("margin", "discordant"), [(0.05, 0.1), (0.05, 0.3), (0.02, 0.05), (0.1, 0.2)])
def test_so_many_samples_do_end_below_the_margin_when_nothing_is_lost(
    margin: float, discordant: float
) -> None:
    count = samples_for_margin(margin, discordant)
    shares = [discordant / 2, discordant / 2, 1 - discordant]
    drawn = np.random.default_rng(2).multinomial(count, shares, EXPERIMENTS)
    low, _ = paired_bounds(drawn[:, 0], drawn[:, 1], count)
    assert 0.76 <= np.mean(-low < margin) <= 0.84


def test_the_smallest_margin_is_where_the_samples_just_suffice() -> None:
    visible = smallest_margin(500, 0.2)
    assert samples_for_margin(visible, 0.2) <= 500 < samples_for_margin(visible * 0.99, 0.2)
    assert 0.9 < smallest_margin(1, 0.9) < 1


def test_independent_errors_disagree_most() -> None:
    assert independent_discordance(0.8, 0.05) == pytest.approx(0.8 * 0.25 + 0.75 * 0.2)


def test_questions_without_an_answer_are_refused() -> None:
    for margin, discordant in ((0.0, 0.1), (1.1, 0.1), (0.1, -0.1)):
        with pytest.raises(UnmaskError):
            samples_for_margin(margin, discordant)
