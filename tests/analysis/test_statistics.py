"""Intervals, tests and corrections against published values and independent implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binomtest, ttest_1samp

from unmask.analysis.statistics import (
    PairedCounts,
    bonferroni,
    bonferroni_level,
    clustered_error,
    clustered_interval,
    exact_interval,
    mcnemar,
    mcnemar_score,
    mean_interval,
    paired_difference,
    paired_interval,
    two_sided,
    unpaired_interval,
    wilson,
)
from unmask.errors import UnmaskError


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_values(successes: int, count: int, low: float, high: float) -> None:
    """Table I of Newcombe, Statistics in Medicine 17, 1998, 857-872, method 3."""
    found = wilson(successes, count)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 3000), st.data())
def test_wilson_agrees_with_scipy(count: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, count))
    expected = binomtest(successes, count).proportion_ci(0.95, method="wilson")
    found = wilson(successes, count)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_tango_gives_the_published_values() -> None:
    """Airway hyper-responsiveness, 1 and 7 of 21 pairs (Fagerland, Lydersen and Laake, Stat. Med. 33, 2014)."""
    found = paired_interval(1, 7, 21)
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(
    ("gained", "lost", "count"), [(12, 2, 50), (6, 16, 161), (0, 5, 200), (40, 20, 160), (0, 0, 30)]
)
def test_tango_agrees_with_a_likelihood_that_is_maximised_by_brute_force(
    gained: int, lost: int, count: int
) -> None:
    def score(delta: float) -> float:
        def unlikely(p: float) -> float:
            chances = [(p + delta, gained), (p, lost), (1 - 2 * p - delta, count - gained - lost)]
            return -sum(n * math.log(max(chance, 1e-300)) for chance, n in chances if n)

        low, high = max(0.0, -delta), (1 - delta) / 2
        p = minimize_scalar(unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
        variance = (2 * p + delta - delta * delta) / count
        return float(((gained - lost) / count - delta) / math.sqrt(variance))

    z, found = two_sided(0.95), paired_interval(gained, lost, count)
    estimate = (gained - lost) / count
    assert found.low == pytest.approx(brentq(lambda d: score(d) - z, -0.99, estimate - 1e-6), abs=1e-5)
    assert found.high == pytest.approx(brentq(lambda d: score(d) + z, estimate + 1e-6, 0.99), abs=1e-5)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 400))
def test_tango_turns_round_with_the_sides_and_excludes_0_exactly_when_mcnemars_score_does(
    gained: int, lost: int, agreeing: int
) -> None:
    count = gained + lost + agreeing
    one, other = paired_interval(gained, lost, count), paired_interval(lost, gained, count)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)
    assert one.low - 1e-9 <= (gained - lost) / count <= one.high + 1e-9
    changed = gained + lost
    statistic = (gained - lost) ** 2 / changed if changed else 0.0
    if abs(statistic - two_sided(0.95) ** 2) > 1e-6:
        assert one.holds(0.0) == (statistic < two_sided(0.95) ** 2)


def test_one_sided_changes_end_at_the_edge() -> None:
    assert paired_interval(30, 0, 30).high == 1
    assert paired_interval(0, 30, 30).low == -1


def test_impossible_counts_are_refused() -> None:
    for call in (lambda: paired_interval(3, 3, 5), lambda: wilson(3, 2), lambda: wilson(0, 0)):
        with pytest.raises(UnmaskError):
            call()


def test_newcombe_gives_the_published_values() -> None:
    """Table II of Newcombe, Statistics in Medicine 17, 1998, 873-890, method 10: 56/70 and 48/80; 9/10 and 3/10."""
    one = unpaired_interval(48 / 80, 80, 56 / 70, 70)
    assert (one.low, one.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    two = unpaired_interval(3 / 10, 10, 9 / 10, 10)
    assert (two.low, two.high) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_mcnemars_tests_by_hand() -> None:
    """Agresti, Categorical Data Analysis, 2nd edition, section 10.1.1: 150 approve only first, 86 only second."""
    assert mcnemar_score(86, 150) == pytest.approx(3.1e-5, rel=0.02)
    assert mcnemar_score(1, 7) == pytest.approx(0.0339, abs=5e-5)
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)
    assert mcnemar(0, 0) == mcnemar_score(0, 0) == 1


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 400), st.sampled_from([0.95, 0.99, 0.999]))
def test_a_difference_is_significant_exactly_where_its_interval_excludes_0(
    gained: int, lost: int, agreeing: int, level: float
) -> None:
    first = [0.0] * gained + [1.0] * lost + [1.0] * agreeing
    second = [1.0] * gained + [0.0] * lost + [1.0] * agreeing
    found = paired_difference(first, second, level=level)
    assert found.interval.holds(0.0) == (found.p_value >= 1 - level)
    assert found.interval.holds(found.value)
    tango = paired_interval(gained, lost, len(first), level)
    assert found.interval.low <= tango.low
    assert found.interval.high >= tango.high


def test_a_paired_difference_counts_every_cell() -> None:
    first, second = [1, 1, 1, 0, 0, 1] * 20, [1, 0, 0, 1, 0, 1] * 20
    found = paired_difference(first, second)
    assert found.counts == PairedCounts(both=40, lost=40, gained=20, neither=20)
    assert found.value == pytest.approx(-20 / 120)
    assert found.p_value == mcnemar(20, 40) > mcnemar_score(20, 40)
    tango, exact = paired_interval(20, 40, 120), exact_interval(20, 40, 120)
    assert found.interval.low == min(tango.low, exact.low)
    assert found.interval.high == max(tango.high, exact.high)
    assert found.interval.method == "Tango, exact"


def test_rows_that_do_not_pair_are_refused() -> None:
    for first, second in (([1, 0], [1]), ([], [])):
        with pytest.raises(UnmaskError):
            paired_difference(first, second)


def test_values_between_right_and_wrong_take_students_interval() -> None:
    first, second = [0.5, 0.25, 1.0, 0.75] * 5, [0.5, 0.5, 0.75, 0.75] * 5
    found = paired_difference(first, second)
    assert found.counts is None
    assert found.p_value == pytest.approx(ttest_1samp(np.subtract(second, first), 0).pvalue)
    assert found.interval == mean_interval([b - a for a, b in zip(first, second, strict=True)])


def test_rows_without_spread_are_not_certain() -> None:
    same = paired_difference([0.5, 0.25, 1.0] * 5, [0.5, 0.25, 1.0] * 5)
    assert (same.value, same.p_value) == (0.0, 1.0)
    assert same.interval == paired_interval(0, 0, 15)
    assert paired_difference([0.5], [0.9]).interval.holds(-0.99)
    clustered = paired_difference([1.0, 1.0, 0.0] * 20, [1.0, 1.0, 0.0] * 20, list(range(20)) * 3)
    assert clustered.interval.holds(0.05)


def test_clusters_never_make_an_interval_narrower() -> None:
    """Changes that cancel within every cluster have no clustered error at all."""
    first, second = [1.0, 0.0] * 30, [0.0, 1.0] * 30
    clusters = [number // 2 for number in range(60)]
    found, plain = paired_difference(first, second, clusters), paired_difference(first, second)
    assert clustered_error([b - a for a, b in zip(first, second, strict=True)], clusters) == 0
    assert (found.interval.low, found.interval.high) == (plain.interval.low, plain.interval.high)
    assert found.p_value == plain.p_value == 1


def test_clustered_errors_by_hand() -> None:
    """Two clusters of two: residual totals 0.5 and -0.5 around 0.5, factor 2 / 1."""
    assert clustered_error([1, 0.5, 0.5, 0], ["a", "a", "b", "b"]) == pytest.approx(math.sqrt(2 * 0.5) / 4)
    with pytest.raises(UnmaskError, match="two clusters"):
        clustered_error([1, 0], ["a", "a"])


def test_every_sample_its_own_cluster_is_the_plain_standard_error() -> None:
    values = np.random.default_rng(0).random(100)
    plain = values.std(ddof=1) / 10
    assert clustered_error(values.tolist(), list(range(100))) == pytest.approx(plain)
    assert clustered_interval(values.tolist(), list(range(100))).low == pytest.approx(
        mean_interval(values.tolist()).low
    )


def test_bonferroni_corrects_intervals_and_p_values_alike() -> None:
    assert bonferroni_level(0.95, 5) == pytest.approx(0.99)
    assert bonferroni_level(0.95, 0) == 0.95
    assert bonferroni(0.01, 4) == pytest.approx(0.04)
    assert bonferroni(0.5, 4) == 1
    assert bonferroni(0.5, 0) == 0.5
