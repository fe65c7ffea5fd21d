"""What must not be concluded: from limited timings, single rounds, other tasks, one run under two names."""

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from sweeps import SUCCESS, changed, clean, retimed

from unmask.analysis.gains import ratio_interval, speedup_of
from unmask.analysis.guards import run_guards
from unmask.analysis.samples import compare
from unmask.analysis.statistics import assumed_discordance, bonferroni_level, samples_for_margin
from unmask.analysis.table import AnalysedExperiment, Planned, Table
from unmask.analysis.verdict import verdict
from unmask.analysis.words import points
from unmask.errors import UnmaskError
from unmask.spec.recipe import Bounds, SuccessSpec


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return clean(0, 2000, tmp_path_factory.mktemp("rows"))


def test_a_limited_timing_does_not_replace_the_full_one(table: Table) -> None:
    full = retimed(table, lambda _: True, prompts=16)
    hasty = retimed(full, lambda _: True, prompts=2, run="limited", seconds=(1.0,) * 9).timings
    both = replace(full, timings=(*full.timings, *hasty))
    assert speedup_of(both, "sweep", "k2_last", "k1_first") == speedup_of(
        full, "sweep", "k2_last", "k1_first"
    )
    found = verdict(both, "sweep")
    assert found.basis.startswith("Speeds were measured on 16 prompts of arith in 5 rounds.")


def test_one_round_has_no_interval_and_confirms_nothing(table: Table) -> None:
    for values in ([1.3], [1.3, 1.31]):
        found = ratio_interval(values)
        assert (found.low, found.high) == (0.0, math.inf)
    hasty = replace(table, timings=tuple(replace(one, seconds=one.seconds[:1]) for one in table.timings))
    assert verdict(table, "sweep").answer == "confirmed"
    assert verdict(hasty, "sweep").answer == "undecided"


def test_a_speed_of_another_task_is_not_used(table: Table) -> None:
    found = verdict(retimed(table, lambda _: True, task="other"), "sweep")
    assert found.answer == "undecided"
    assert all(one.gain is None for one in found.candidates)


def test_invalid_figures_do_not_reject(table: Table) -> None:
    strict = SuccessSpec(
        task="arith",
        control="k1_first",
        candidates=("k2_*", "k3_*"),
        confirm=Bounds(speedup=2, drop=0.001),
        reject=Bounds(speedup=1.5, drop=0.1),
    )
    asked = replace(table, experiments=(replace(table.experiments[0], success=strict),))
    assert verdict(asked, "sweep").answer == "rejected"
    found = verdict(changed(asked, "k3_first", value=0.9), "sweep")
    assert found.answer == "undecided"
    assert found.reason.endswith("But a guard calls the figures invalid.")
    assert found.missing[0].startswith("What the guards call invalid (contradiction) must be mended first")


def test_a_collapsed_candidate_is_rejected_by_its_loss(table: Table) -> None:
    """Its tokens/s mean nothing, its lost answers do; so it bars no rejection either."""
    strict = replace_criteria(table, confirm=Bounds(gain=2, drop=0.05), reject=Bounds(gain=1.08, drop=0.1))
    assert verdict(strict, "sweep").answer == "rejected"
    collapsed = changed(strict, "k3_first", truncated=1900)
    (found,) = [one for one in run_guards(collapsed) if one.guard == "collapse"]
    assert (found.severity, found.spoils) == ("invalid", ("speed", "tokens_a_forward"))
    assert verdict(collapsed, "sweep").answer == "rejected"
    slow = verdict(changed(strict, "k2_last", truncated=1900), "sweep")
    assert slow.answer == "undecided", "k2_last is rejected by its speed only, which means nothing now"


def replace_criteria(table: Table, **bounds: Bounds) -> Table:
    about = table.experiments[0]
    assert about.success is not None
    success = msgspec.structs.replace(about.success, **bounds)
    return replace(table, experiments=(replace(about, success=success),))


def test_limited_rows_are_named(table: Table) -> None:
    limited = replace(table, entries=tuple(replace(one, limit=2000) for one in table.entries))
    assert "Losses are those of arith (limit 2000), not of all rows." in verdict(limited, "sweep").basis


def test_candidates_that_never_started_widen_the_intervals(table: Table) -> None:
    waiting = AnalysedExperiment(
        name="sweep", control="k1_first", success=SUCCESS, missing=(Planned("k2_extra", "arith"),)
    )
    found = verdict(replace(table, experiments=(waiting,)), "sweep")
    assert len(found.candidates) == 7
    levels = [
        one.loss.interval.level
        for judged in (verdict(table, "sweep"), found)
        for one in judged.candidates
        if one.configuration == "k2_last" and one.loss
    ]
    assert levels == pytest.approx([1 - 0.05 / 8, 1 - 0.05 / 9])


def test_one_run_under_two_names_is_no_pair_of_controls(table: Table) -> None:
    other = changed(table, "k1_middle", answers="other")
    assert "controls-differ" in {one.guard for one in run_guards(other)}
    same = changed(other, "k1_middle", run="k1_first")
    assert "controls-differ" not in {
        one.guard for one in run_guards(same) if "k1_middle" in one.configurations
    }


def test_rows_that_contradict_the_result_are_invalid(table: Table) -> None:
    wrong = changed(table, "k2_last", value=0.5)
    found = [one for one in run_guards(wrong) if one.guard == "contradiction"]
    assert [one.severity for one in found] == ["invalid"]
    assert "its result says 50.00 %" in found[0].sentence
    entries = {one.configuration: one for one in wrong.entries}
    with pytest.raises(UnmaskError, match="contradict each other"):
        compare(entries["k1_first"], entries["k2_last"])


def test_rows_that_are_cut_short_do_not_stop_the_guards(tmp_path: Path) -> None:
    table = clean(0, 100, tmp_path)
    path = tmp_path / "k2_last.jsonl"
    path.write_bytes(path.read_bytes()[:-300])
    found = [one for one in run_guards(table) if one.guard == "damaged-rows"]
    assert [one.severity for one in found] == ["invalid"]
    assert "unmask run RECIPE --force k2_last" in found[0].sentence


def test_plan_and_check_ask_for_the_same_rows(tmp_path: Path) -> None:
    table = clean(0, 10)
    perfect = replace(table, entries=tuple(replace(one, value=1.0) for one in table.entries))
    (found,) = [one for one in run_guards(perfect) if one.guard == "too-few-samples"]
    needed = samples_for_margin(0.05, assumed_discordance(), bonferroni_level(0.95, 8))
    assert f"takes {needed:,} rows" in found.sentence


def test_there_is_no_negative_zero() -> None:
    assert points(-0.0001) == "0.0 points"


@pytest.mark.parametrize("reject", [Bounds(speedup=1.5, drop=0.3), Bounds(speedup=1.0, drop=0.01)])
def test_contradictory_criteria_are_refused(reject: Bounds) -> None:
    with pytest.raises(UnmaskError, match="confirmed and rejected"):
        SuccessSpec(
            task="t", control="c", candidates=("*",), confirm=Bounds(speedup=1.2, drop=0.05), reject=reject
        )
