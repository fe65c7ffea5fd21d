"""Verdicts: confirmed, rejected and undecided, each for its reason; the guards have a say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sweeps import SUCCESS, TASK, clean, entry, timings

from unmask.analysis import samples
from unmask.analysis.table import AnalysedExperiment, Planned, Table
from unmask.analysis.verdict import Verdict, candidates_of, verdict
from unmask.errors import UnmaskError
from unmask.spec.recipe import Bounds, SuccessSpec


def criteria(**fields: Any) -> SuccessSpec:
    given = {
        "task": TASK,
        "control": "k1_first",
        "candidates": ("k2_*", "k3_*"),
        "confirm": Bounds(speedup=1.02, drop=0.05),
        "reject": Bounds(speedup=1.0, drop=0.3),
    }
    return SuccessSpec(**{**given, **fields})


def asked(table: Table, wanted: SuccessSpec) -> Verdict:
    return verdict(replace(table, experiments=(replace(table.experiments[0], success=wanted),)), "sweep")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """k2_last loses 2.7 points and gains 6 %; k3_first loses 27."""
    return clean(0, 2000, tmp_path_factory.mktemp("rows"))


def test_confirmed_by_one_candidate(table: Table) -> None:
    found = asked(table, criteria())
    assert found.answer == "confirmed"
    assert found.reason == "k2_last is faster than 1.02x with a loss below 5.0 points on arith."
    assert "Speeds were measured on 16 prompts of arith in 5 rounds." in found.basis
    assert "the intervals of all 6 candidates must hold together at 95 %" in found.basis
    assert found.missing == ()
    assert len(found.candidates) == 6


def test_rejected_when_every_candidate_fails_in_its_own_way(table: Table) -> None:
    strict = criteria(confirm=Bounds(speedup=2, drop=0.001), reject=Bounds(speedup=1.08, drop=0.10))
    found = asked(table, strict)
    assert found.answer == "rejected"
    assert found.reason == (
        "All 6 candidates are rejected on arith (slower than 1.08x: k2_first, k2_middle, k2_last; a loss above 10.0 "
        "points: k3_first, k3_middle, k3_last)."
    )
    assert "To confirm" not in found.basis


def test_undecided_between_the_two(table: Table) -> None:
    found = asked(
        table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=Bounds(speedup=1.01, drop=0.5))
    )
    assert found.answer == "undecided"
    assert found.reason == (
        "None of the 6 candidates can be faster than 1.5x with a loss below 5.0 points on arith any more. None of them "
        "is rejected outright."
    )


def test_undecided_names_who_can_still_confirm_and_who_is_out(table: Table) -> None:
    found = asked(table, criteria(confirm=Bounds(speedup=1.02, drop=0.03)))
    assert found.answer == "undecided"
    assert found.reason == (
        "The intervals do not show yet whether k2_last is faster than 1.02x with a loss below 3.0 points on arith. The "
        "other 5 candidates (k2_first, k2_middle, k3_first, k3_middle, k3_last) can no longer reach that."
    )


def test_some_candidates_are_rejected_outright(table: Table) -> None:
    found = asked(
        table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=Bounds(speedup=1.01, drop=0.2))
    )
    assert found.answer == "undecided"
    assert found.reason.endswith("1 of them (k3_first) is rejected outright.")


def test_a_missing_reject_table_is_named(table: Table) -> None:
    found = asked(table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=None))
    assert found.answer == "undecided"
    assert any("does not say when to reject" in sentence for sentence in found.missing)


def test_a_tight_criterion_asks_for_more_rows(table: Table) -> None:
    found = asked(table, criteria(confirm=Bounds(speedup=1.02, drop=0.03)))
    assert found.answer == "undecided"
    rows = [sentence for sentence in found.missing if sentence.startswith("k2_last: about")]
    assert len(rows) == 1
    assert "rows instead of 2,000, if the true loss is the measured one" in rows[0]


def test_what_loses_too_much_so_far_is_told_in_one_sentence(table: Table) -> None:
    loss = candidates_of(table, "sweep", criteria(candidates=("k2_last",)))[0].loss
    assert loss is not None
    narrow = criteria(candidates=("k2_last",), confirm=Bounds(speedup=1.02, drop=loss.value - 0.001))
    found = asked(table, narrow)
    assert found.answer == "undecided"
    assert (
        "k2_last: more rows; the loss so far is more than allowed, but not beyond its error." in found.missing
    )


def test_a_tight_speed_asks_for_more_rounds(table: Table) -> None:
    speed = next(one for one in candidates_of(table, "sweep", SUCCESS) if one.configuration == "k2_last")
    assert speed.speedup is not None
    found = asked(table, criteria(confirm=Bounds(speedup=round(speed.speedup.value, 4), drop=0.05)))
    assert found.answer == "undecided"
    assert any(
        "k2_last: more rounds of the timing run; 5 rounds so far, with an interval of 1.0" in sentence
        for sentence in found.missing
    )


def test_without_timing_runs_nothing_is_confirmed(table: Table) -> None:
    found = asked(replace(table, timings=()), criteria())
    assert found.answer == "undecided"
    assert any("No timing run on arith holds k2_first" in sentence for sentence in found.missing)


def test_a_speed_of_the_accuracy_run_is_no_speed(table: Table) -> None:
    fast = replace(
        table,
        timings=(),
        entries=tuple(replace(one, run_tokens_per_second=1000.0) for one in table.entries),
    )
    assert asked(fast, criteria()).answer == "undecided"


def test_without_rows_on_disk_nothing_is_confirmed(table: Table) -> None:
    blind = replace(table, entries=tuple(replace(one, samples=None) for one in table.entries))
    found = asked(blind, criteria())
    assert found.answer == "undecided"
    assert any("not on disk" in sentence for sentence in found.missing)


def test_planned_candidates_without_a_result_keep_a_rejection_open(table: Table) -> None:
    strict = criteria(confirm=Bounds(speedup=2, drop=0.001), reject=Bounds(speedup=1.08, drop=0.10))
    waiting = replace(
        table,
        experiments=(
            AnalysedExperiment(
                name="sweep", control="k1_first", success=strict, missing=(Planned("k2_extra", TASK),)
            ),
        ),
    )
    found = verdict(waiting, "sweep")
    assert found.answer == "undecided"
    assert "1 planned run without a result: k2_extra on arith." in found.missing


def test_what_a_guard_calls_invalid_confirms_nothing(table: Table) -> None:
    broken = replace(
        table,
        entries=tuple(
            replace(one, truncated=1900) if one.configuration == "k2_last" else one for one in table.entries
        ),
    )
    found = asked(broken, criteria())
    assert found.answer == "undecided"
    assert found.reason.endswith("But a guard calls the figures invalid.")
    assert "collapse" in found.missing[0]


def test_many_candidates_widen_the_intervals(table: Table) -> None:
    alone = candidates_of(table, "sweep", criteria(candidates=("k2_last",)))[0]
    crowd = next(one for one in candidates_of(table, "sweep", criteria()) if one.configuration == "k2_last")
    assert alone.loss is not None
    assert crowd.loss is not None
    assert alone.loss.corrected == alone.loss.interval == crowd.loss.interval
    assert crowd.loss.corrected.low < crowd.loss.interval.low
    assert crowd.loss.corrected.high > crowd.loss.interval.high


def test_an_experiment_without_criteria_has_no_verdict(table: Table) -> None:
    with pytest.raises(UnmaskError, match="no criteria"):
        verdict(replace(table, experiments=(AnalysedExperiment(name="sweep"),)), "sweep")


def test_chance_seldom_confirms_the_best_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve candidates that lose exactly the allowed 5 points: without a correction the luckiest would pass."""
    wanted = criteria(candidates=("c*",), confirm=Bounds(speedup=1.0, drop=0.05))
    rows: dict[str, dict[str, float]] = {}
    monkeypatch.setattr(samples, "outcomes", lambda one: rows[one.configuration])
    wrong = lucky = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        base = random.random(300) < 0.9
        entries = [entry("k1_first", base, random)]
        timed = timings(["k1_first"], random)
        rows = {"k1_first": by_row(base)}
        for number in range(12):
            right, name = base & (random.random(300) >= 0.05 / 0.9), f"c{number}"
            rows[name] = by_row(right)
            entries.append(entry("k2_last", right, random, configuration=name, run=name))
            timed.append(replace(timings(["k2_last"], random)[0], configuration=name))
        about = AnalysedExperiment(name="sweep", control="k1_first", success=wanted)
        found = verdict(Table((about,), tuple(entries), tuple(timed)), "sweep", findings=())
        wrong += found.answer == "confirmed"
        lucky += any(one.loss is not None and one.loss.interval.high < 0.05 for one in found.candidates)
    assert wrong <= 1 < lucky


def by_row(right: NDArray[np.bool_]) -> dict[str, float]:
    return {str(number): float(value) for number, value in enumerate(right)}
