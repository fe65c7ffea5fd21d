"""Intervals that hold at every look: what they cover, and how soon they know."""

import numpy as np
import pytest
from seed_figures import PUBLISHED

from unmask.analysis.anytime import anytime_bounds, anytime_interval, looks, sides
from unmask.analysis.decisions import simulate
from unmask.analysis.statistics import bonferroni_level, independent_discordance
from unmask.errors import UnmaskError

CHANGES = (-1.0, 0.0, 1.0)


@pytest.mark.parametrize(("loss", "share"), [(0.0, 0.02), (0.0, 0.4), (0.05, 0.05), (0.13, 0.2), (0.5, 0.9)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_an_interval_holds_the_truth_at_all_looks_together(loss: float, share: float, level: float) -> None:
    found = simulate(1319, 32, loss, share, (0.05,), level, sweeps=2_000, seed=1)
    assert found.covered >= level
    assert found.wrong <= 1 - level


def test_values_that_are_no_counts_are_covered_too() -> None:
    random, held = np.random.default_rng(2), 0
    for _ in range(200):
        changes = random.beta(2, 3, 300) * 2 - 1
        held += anytime_interval(changes.tolist(), 20, 0.9).holds(-0.2)
    assert held >= 180


def test_a_published_loss_of_13_points_is_certain_after_two_fifths_of_the_rows() -> None:
    accuracy = {figure.config: figure.accuracy for figure in PUBLISHED if figure.task == "gsm8k"}
    loss = accuracy["k1_first"] - accuracy["k3_first"]
    share = 0.5 * independent_discordance(accuracy["k1_first"], loss)
    for comparisons in (2, 8):
        found = simulate(1319, 64, loss, share, (0.05,), bonferroni_level(0.95, comparisons), 500)
        assert found.rows <= 0.4 * 1319
        assert found.decided > 0.95
    near = accuracy["k1_first"] - accuracy["k2_first"]
    assert simulate(1319, 64, near, share, (0.05,), bonferroni_level(0.95, 2), 500).decided < 0.2


def test_two_bounds_are_known_later_than_either() -> None:
    either = [simulate(1319, 64, 0.1, 0.2, (bound,), 0.95, seed=3) for bound in (0.04, 0.18)]
    both = simulate(1319, 64, 0.1, 0.2, (0.04, 0.18), 0.95, seed=3)
    assert both.decided <= min(one.decided for one in either)
    assert both.rows >= max(one.rows for one in either)


def test_sides_are_those_of_the_bounds() -> None:
    counts = np.array([[30, 60, 10], [5, 90, 5], [0, 100, 0], [300, 600, 100]])
    low, high = anytime_bounds(CHANGES, counts, 0.95)
    assert (low < high).all()
    for bound in (-0.3, -0.15, -0.05, 0.0, 0.05):
        assert sides(CHANGES, counts, bound).tolist() == [
            int(below > bound) - int(above < bound) for below, above in zip(low, high, strict=True)
        ]


def test_both_sides_are_treated_alike_and_more_rows_say_more() -> None:
    changes = [1.0] * 30 + [0.0] * 60 + [-1.0] * 10
    low, high = anytime_bounds(CHANGES, [[10, 60, 30]])
    mirrored = anytime_interval([-change for change in changes], 100)
    assert (mirrored.low, mirrored.high) == pytest.approx((-high[0], -low[0]))
    wide, narrow = anytime_interval(changes, 100), anytime_interval(changes * 5, 500)
    assert wide.low < narrow.low < 0.2 < narrow.high < wide.high


def test_what_an_earlier_look_has_ruled_out_stays_so() -> None:
    falling = [1.0] * 200 + [0.0] * 400
    at_once, often = anytime_interval(falling, 600), anytime_interval(falling, 100)
    assert often.low > at_once.low
    contrary = anytime_interval([1.0] * 500 + [-1.0] * 500, 100)
    assert contrary.low <= contrary.high


def test_no_rows_say_nothing_and_values_out_of_range_are_refused() -> None:
    assert (anytime_interval([], 10).low, anytime_interval([], 10).high) == (-1.0, 1.0)
    assert looks(10, 4).tolist() == [4, 8, 10]
    assert looks(8, 4).tolist() == [4, 8]
    assert looks(3, 4).tolist() == [3]
    with pytest.raises(UnmaskError, match="-1 to 1"):
        anytime_interval([2.0], 1)
    with pytest.raises(UnmaskError, match="not possible"):
        simulate(100, 10, 0.2, 0.1, (0.05,), 0.95)
