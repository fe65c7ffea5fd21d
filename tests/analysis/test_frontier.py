"""The frontier: who is dominated, by whom, and what is best under a budget."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import clean, decode, effect

from unmask.analysis.frontier import Point, aup, best_under, curves, frontier
from unmask.analysis.table import ConfigurationResult, Table
from unmask.store.result import Effect


def placed(
    table: Table, gains: dict[str, float], values: dict[str, float], axis: str = "speed"
) -> dict[str, Point]:
    """The frontier of chosen configurations at chosen places, without noise."""
    entries = tuple(
        replace(one, value=values[one.configuration]) for one in table.entries if one.configuration in gains
    )
    timed = tuple(
        replace(one, seconds=tuple(10 / gains[one.configuration] for _ in range(5)))
        for one in table.timings
        if one.configuration in gains
    )
    made = replace(table, entries=entries, timings=timed)
    return {point.configuration: point for point in frontier(made, made.groups()[0], axis)}  # type: ignore[arg-type]


GAINS = {"k1_first": 1.0, "k2_last": 1.06, "k3_last": 1.1, "t0.8": 1.05, "t0.7": 1.2}
VALUES = {"k1_first": 0.92, "k2_last": 0.90, "k3_last": 0.85, "t0.8": 0.91, "t0.7": 0.80}


def test_a_policy_above_the_threshold_curve_is_not_dominated() -> None:
    points = placed(clean(), GAINS, {**VALUES, "k2_last": 0.915})
    assert points["k2_last"].dominated_by == ()
    assert points["t0.8"].dominated_by == ("k2_last",)


def test_a_policy_that_a_lower_threshold_beats_is_dominated() -> None:
    points = placed(clean(), GAINS, {**VALUES, "t0.7": 0.86})
    assert points["k3_last"].dominated_by == ("t0.7",)
    assert points["t0.7"].dominated_by == ()
    assert points["k1_first"].dominated_by == ()


def test_a_policy_below_the_curve_between_two_thresholds_is_dominated_too() -> None:
    """At 1.1x the curve from (1.05, 0.91) to (1.2, 0.80) lies at 0.873; the policy is at 0.85."""
    points = placed(clean(), GAINS, VALUES)
    assert points["k3_last"].dominated_by == ("t0.8", "t0.7")
    assert not points["k3_last"].certainly
    assert placed(clean(), GAINS, {**VALUES, "k3_last": 0.88})["k3_last"].dominated_by == ()


def test_thresholds_of_another_checkpoint_or_block_are_no_curve_for_a_policy() -> None:
    """The curve that beats k3_last would need both thresholds."""
    for changes in ({"model": "another"}, {"decode": {"threshold": 0.7, "block_size": 1}}):
        table = clean()
        entries = tuple(
            replace(one, **changes) if one.configuration == "t0.7" else one for one in table.entries
        )
        assert placed(replace(table, entries=entries), GAINS, VALUES)["k3_last"].dominated_by == ()


def test_twins_do_not_dominate_each_other() -> None:
    """What must decode alike differs by the noise of a clock only."""
    gains = {**GAINS, "k1_middle": 1.001}
    points = placed(clean(), gains, {**VALUES, "k1_middle": 0.92})
    assert points["k1_first"].dominated_by == points["k1_middle"].dominated_by == ()


def test_the_fastest_comes_first_and_untimed_configurations_stay_out() -> None:
    table = clean()
    points = frontier(replace(table, timings=table.timings[:4]), table.groups()[0])
    assert len(points) == 4
    assert [point.gain for point in points] == sorted((point.gain for point in points), reverse=True)


def test_work_takes_the_place_of_speed() -> None:
    table = clean()
    points = {point.configuration: point for point in frontier(table, table.groups()[0], "work")}
    assert len(points) == 11
    assert points["k1_first"].gain == 1
    assert points["k3_last"].gain == pytest.approx(1.09, abs=3e-3)
    usual = effect("k2_last", 2000, 120_000)["generation"]
    lean = {"generation": msgspec.structs.replace(usual, flops=60_000_000_000_000)}
    entries = tuple(
        replace(one, effect=lean, tokens=120_000) if one.configuration == "k2_last" else one
        for one in table.entries
    )
    again = frontier(replace(table, entries=entries), replace(table, entries=entries).groups()[0], "work")
    assert again[0].configuration == "k2_last"
    assert again[0].gain == pytest.approx(2.0)


def test_the_best_under_a_budget(tmp_path: Path) -> None:
    table = clean(0, 2000, tmp_path)
    points = frontier(table, table.groups()[0])
    assert best_under(points, 0.05) == next(point for point in points if point.configuration == "k2_last")
    best = best_under(points, 0.0)
    assert best is not None
    assert best.configuration.startswith("k1")
    loose = best_under(points, 0.5)
    assert loose is not None
    assert loose.configuration == "t0.7"
    assert best_under([], 0.1) is None


def test_domination_beyond_the_intervals_is_marked(tmp_path: Path) -> None:
    table = clean(0, 2000, tmp_path)
    points = {point.configuration: point for point in frontier(table, table.groups()[0])}
    assert "t0.7" in points["k2_first"].dominated_by
    assert points["k3_first"].certainly


def test_a_speed_of_generation_is_none_of_scoring() -> None:
    """A timing run on one task serves another only if both go the same path."""
    table = clean()
    elsewhere = replace(table, timings=tuple(replace(one, task="other") for one in table.timings))
    points = frontier(elsewhere, elsewhere.groups()[0])
    assert len(points) == 11
    assert {point.speedup.task for point in points if point.speedup} == {"other"}
    scoring = replace(elsewhere, timings=tuple(replace(one, path="scoring") for one in elsewhere.timings))
    assert frontier(scoring, scoring.groups()[0]) == []


def test_without_a_control_there_is_no_frontier() -> None:
    table = clean()
    only = replace(table, entries=tuple(one for one in table.entries if one.configuration == "k2_last"))
    assert frontier(only, only.groups()[0]) == []


def test_aup_gives_the_published_values() -> None:
    """Fast-dLLM v2 7B in hao-ai-lab/d3LLM, AUP_leaderboard/data_dream.yaml, with the y_max of its comparison."""
    assert aup([(1, 82.82), (2.21, 81.48)], 83.94) == pytest.approx(176.1, abs=0.05)
    assert aup([(1, 49.92), (2.61, 48.74)], 49.92) == pytest.approx(126.7, abs=0.05)


def generating(table: Table, name: str, rate: float, accuracy: float, **fields: Any) -> ConfigurationResult:
    """An entry with given tokens a forward."""
    one = next(entry for entry in table.entries if entry.configuration == name)
    work = Effect(requests=10, forwards={"prefill": 7, "block": 60, "sub": 30, "commit": 10}, branch_rows=1)
    return replace(one, value=accuracy, tokens=round(rate * 100), effect={"generation": work}, **fields)


def test_a_curve_is_one_policy_at_several_thresholds() -> None:
    table = clean()
    lower = {"configuration": "k2_last_t0.7", "decode": decode("t0.7")}
    entries = (
        generating(table, "k1_first", 2.0, 0.90),
        generating(table, "k1_last", 2.0, 0.90),
        generating(table, "t0.8", 2.5, 0.88),
        generating(table, "t0.7", 3.0, 0.84),
        generating(table, "k2_last", 2.2, 0.70),
        generating(table, "k2_last", 2.8, 0.66, **lower),
        generating(table, "k3_last", 2.4, 0.95),
    )
    plain, reuse = curves(replace(table, entries=entries).groups()[0])
    assert plain.method == "plain decoding"
    assert [point.configuration for point in plain.points] == ["k1_first", "t0.8"], (
        "k1_last is k1_first again"
    )
    assert [point.configuration for point in plain.left_out] == ["t0.7"]
    assert reuse.method == "layer_reuse, k = 2"
    assert [point.configuration for point in reuse.points] == ["k2_last", "k2_last_t0.7"]
    assert plain.best == reuse.best == 95.0, "the best of all, also of what has a single point"
    assert plain.aup == aup([(2.0, 90.0), (2.5, 88.0)], 95.0)


def test_rules_of_other_kinds_and_other_settings_are_other_methods() -> None:
    table = clean()
    ruled = {
        "rule": {"configuration": "entropy", "decode": {"rule": {"kind": "entropy_bound", "bound": 0.1}}},
        "blocks": {"configuration": "blocks", "decode": {**decode("t0.7"), "sub_block_size": 4}},
    }
    entries = (
        generating(table, "k1_first", 2.0, 0.90),
        generating(table, "t0.7", 3.0, 0.84, **ruled["rule"]),
        generating(table, "t0.7", 3.0, 0.84, **ruled["blocks"]),
    )
    assert curves(replace(table, entries=entries).groups()[0]) == []


@given(
    st.lists(
        st.tuples(st.floats(1, 8), st.floats(1, 100)),
        min_size=1,
        max_size=6,
        unique_by=lambda point: point[0],
    ),
    st.floats(0, 20),
)
def test_aup_lies_between_the_first_point_and_the_unweighted_area(
    points: list[tuple[float, float]], above: float
) -> None:
    ordered = sorted(points)
    best = max(accuracy for _, accuracy in ordered) + above
    first_rate, first_accuracy = ordered[0]
    most = max(accuracy for _, accuracy in ordered)
    value = aup(ordered, best)
    assert first_rate * first_accuracy - 1e-6 <= value
    assert value <= first_rate * first_accuracy + (ordered[-1][0] - first_rate) * most + 1e-6
