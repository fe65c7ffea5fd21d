"""Verdicts: confirmed, rejected and undecided, each for its reason; the guards have a say."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from sweeps import SUCCESS, TASK, clean, entry, policy, timings

from unmask.analysis import samples
from unmask.analysis.losses import Comparisons, loss_of
from unmask.analysis.table import AnalysedExperiment, Planned, Table
from unmask.analysis.verdict import Verdict, candidates_of, verdict
from unmask.cost import ModelShape
from unmask.cost.work_sums import WorkSums
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store.result import Effect, KindWork, SharedWork

SEVEN_B = ModelShape(28, 3584, 18944, 28, 4, 128, 152064)


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
    assert found.reason == "k2_last reaches 1.02x by speed within 5 points of k1_first on arith."
    assert "Speeds were measured on 16 prompts of arith in 5 rounds." in found.basis
    assert "the table's 99.4 % intervals, so that all eight comparisons hold together at 95 %." in found.basis
    assert found.missing == ()
    assert len(found.candidates) == 6


def test_rejected_when_every_candidate_fails_in_its_own_way(table: Table) -> None:
    strict = criteria(confirm=Bounds(speedup=2, drop=0.001), reject=Bounds(speedup=1.08, drop=0.10))
    found = asked(table, strict)
    assert found.answer == "rejected"
    assert found.reason == (
        "All six candidates are rejected on arith (below 1.08x by speed: k2_first, k2_middle, k2_last; a loss above 10 "
        "points: k3_first, k3_middle, k3_last)."
    )
    assert "To confirm" not in found.basis


def test_not_confirmed_when_nobody_can_reach_it_any_more(table: Table) -> None:
    found = asked(
        table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=Bounds(speedup=1.01, drop=0.5))
    )
    assert found.answer == "not confirmed"
    assert found.reason == (
        "None of the six candidates can reach 1.5x by speed within 5 points of k1_first on arith any more. None of "
        "them is rejected outright."
    )
    assert found.missing == ()


def test_undecided_names_who_can_still_confirm_and_who_is_out(table: Table) -> None:
    found = asked(table, criteria(confirm=Bounds(speedup=1.02, drop=0.03)))
    assert found.answer == "undecided"
    assert found.reason == (
        "The figures do not show yet whether k2_last reaches 1.02x by speed within 3 points of k1_first on arith. The "
        "other five candidates (k2_first, k2_middle, k3_first, k3_middle, k3_last) can no longer reach that."
    )


def test_some_candidates_are_rejected_outright(table: Table) -> None:
    found = asked(
        table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=Bounds(speedup=1.01, drop=0.2))
    )
    assert found.answer == "not confirmed"
    assert found.reason.endswith("One of them (k3_first) is rejected outright.")


def test_without_a_reject_table_nothing_is_rejected(table: Table) -> None:
    found = asked(table, criteria(confirm=Bounds(speedup=1.5, drop=0.05), reject=None))
    assert found.answer == "not confirmed"
    assert found.reason.endswith("on arith any more.")
    alone = asked(
        table, criteria(candidates=("k3_first",), confirm=Bounds(speedup=1.5, drop=0.05), reject=None)
    )
    assert alone.reason == (
        "The one candidate, k3_first, cannot reach 1.5x by speed within 5 points of k1_first on arith any more."
    )


def test_counted_work_decides_without_a_timing_run(table: Table) -> None:
    """Work is exact over the same rows: k2 needs 1.06 times less, k3 1.09 times less."""
    untimed = replace(table, timings=())
    found = asked(untimed, criteria(by="work", confirm=Bounds(gain=1.05, drop=0.05), reject=None))
    assert found.answer == "confirmed"
    assert found.reason == "k2_last reaches 1.05x by counted work within 5 points of k1_first on arith."
    assert found.basis.startswith(
        "Counted work: the operations of the control divided by those of the candidate"
    )
    best = next(one for one in found.candidates if one.configuration == "k2_last").gain
    before, after = (
        next(one for one in table.entries if one.configuration == name) for name in ("k1_first", "k2_last")
    )
    assert best is not None
    assert best.value == before.effect["generation"].flops / after.effect["generation"].flops
    assert best.low == best.value == best.high
    shared = {"generation": SharedWork(positions=1, flops=10**9, forwards=1)}
    batched = replace(untimed, entries=tuple(replace(one, shared=shared) for one in untimed.entries))
    again = asked(batched, criteria(by="work", confirm=Bounds(gain=1.05, drop=0.05), reject=None))
    assert [one.gain for one in again.candidates] == [one.gain for one in found.candidates]
    more = asked(
        untimed, criteria(by="work", confirm=Bounds(gain=1.2, drop=0.05), reject=Bounds(gain=1.0, drop=0.2))
    )
    assert more.answer == "not confirmed"
    assert "can reach 1.2x by counted work within 5 points" in more.reason


def test_more_work_over_the_same_rows_is_no_gain(table: Table) -> None:
    """A candidate that writes on and on works more in all, though less for each token."""
    usual = next(one for one in table.entries if one.configuration == "k2_last")
    part = usual.effect["generation"]
    wordy = replace(
        usual,
        tokens=3 * (usual.tokens or 0),
        effect={"generation": msgspec.structs.replace(part, flops=2 * part.flops)},
    )
    entries = tuple(wordy if one is usual else one for one in table.entries)
    found = asked(
        replace(table, entries=entries, timings=()),
        criteria(
            by="work",
            candidates=("k2_last",),
            confirm=Bounds(gain=1.05, drop=0.05),
            reject=Bounds(gain=1.0, drop=0.3),
        ),
    )
    assert found.answer == "rejected"
    assert "(below 1x by counted work: k2_last)" in found.reason


def test_tokens_a_forward_decide_by_accepted_tokens_over_denoising_and_commit_forwards(table: Table) -> None:
    quick = next(one for one in table.entries if one.configuration == "k2_last")
    forwards = {"prefill": 10**9, "block": 10_000, "sub": 18_000, "commit": 2_000}
    effect = msgspec.structs.replace(quick.effect["generation"], forwards=forwards)
    entries = tuple(
        replace(one, tokens=120_000, effect={"generation": effect}) if one is quick else one
        for one in table.entries
    )
    wanted = criteria(
        by="tokens_a_forward", candidates=("k2_last",), confirm=Bounds(gain=1.5, drop=0.05), reject=None
    )
    found = asked(replace(table, entries=entries, timings=()), wanted)
    assert found.answer == "confirmed"
    assert found.reason == "k2_last reaches 1.5x by tokens a forward within 5 points of k1_first on arith."
    (candidate,) = found.candidates
    assert candidate.gain is not None
    control = 120_000 / (12_000 + 40_000 + 2_000)
    assert candidate.gain.value == pytest.approx(4.0 / control)


def test_what_counts_nothing_is_told_so(table: Table) -> None:
    scored = replace(table, timings=(), entries=tuple(replace(one, tokens=None) for one in table.entries))
    found = asked(scored, criteria(by="tokens_a_forward", confirm=Bounds(gain=1.5, drop=0.05), reject=None))
    assert found.answer == "undecided"
    assert any(
        "k2_last: its result or that of k1_first counts no tokens a forward" in one for one in found.missing
    )


def test_a_retracted_control_is_named_instead_of_results_that_are_there(table: Table) -> None:
    entries = tuple(one for one in table.entries if one.configuration != "k1_first")
    about = replace(table.experiments[0], success=criteria(), retracted=(Planned("k1_first", TASK),))
    found = verdict(replace(table, entries=entries, experiments=(about,)), "sweep")
    assert found.answer == "undecided"
    assert "1 retracted result: k1_first on arith." in found.missing
    assert "The control k1_first has no result on arith to compare with." in found.missing
    assert not any("a result on arith beside" in sentence for sentence in found.missing)


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
    assert speed.gain is not None
    found = asked(table, criteria(confirm=Bounds(speedup=round(speed.gain.value, 4), drop=0.05)))
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
    few = tuple(one for one in table.entries if one.configuration in ("k1_first", "k2_last"))
    small = replace(
        table,
        entries=few,
        timings=tuple(one for one in table.timings if one.configuration in ("k1_first", "k2_last")),
    )
    alone = candidates_of(small, "sweep", criteria(candidates=("k2_last",)))[0]
    crowd = next(one for one in candidates_of(table, "sweep", criteria()) if one.configuration == "k2_last")
    assert alone.loss is not None
    assert crowd.loss is not None
    assert crowd.loss.interval.low < alone.loss.interval.low
    assert crowd.loss.interval.high > alone.loss.interval.high
    assert crowd.gain is not None
    assert alone.gain is not None
    assert crowd.gain.low < alone.gain.low


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
            own = {**policy("k2_last"), "size": number + 1}
            entries.append(entry("k2_last", right, random, configuration=name, run=name, policy=own))
            timed.append(replace(timings(["k2_last"], random)[0], configuration=name))
        about = AnalysedExperiment(name="sweep", control="k1_first", success=wanted)
        found = verdict(Table((about,), tuple(entries), tuple(timed)), "sweep", findings=())
        wrong += found.answer == "confirmed"
        alone = [loss_of(entries[0], one, Comparisons(1)) for one in entries[1:]]
        lucky += any(loss is not None and loss.interval.high < 0.05 for loss in alone)
    assert wrong <= 1 < lucky


def by_row(right: NDArray[np.bool_]) -> dict[str, float]:
    return {str(number): float(value) for number, value in enumerate(right)}


def counted_on_7b(spec: dict[str, Any]) -> dict[str, Effect]:
    """What a result of the published 7B checkpoint counts under a policy."""
    sums = WorkSums.of(rehearse(make_policy(policy_spec(spec), 28), 28, Script()), SEVEN_B)
    kinds = {
        kind: KindWork(forwards=part.forwards, branch_rows=part.branch_rows)
        for kind, part in sums.kinds.items()
    }
    return {
        "generation": Effect(
            requests=1,
            forwards={kind: part.forwards for kind, part in kinds.items()},
            by_kind=kinds,
            layer_calls=sums.layer_calls,
            flops=sums.flops,
        )
    }


@pytest.mark.parametrize("card", ["rtx6000", "h100"])
def test_a_predicted_speed_decides_and_says_that_nothing_was_timed(table: Table, card: str) -> None:
    """At batch 1 skipped layers are not read and gain; skipped rows save as much work and gain nothing."""
    counted = {
        "k1_first": counted_on_7b({"kind": "full"}),
        "k2_last": counted_on_7b({"kind": "layer_reuse", "k": 2, "on": ["sub", "block"]}),
        "k3_first": counted_on_7b({"kind": "trim", "keep": 0}),
    }
    shape = {name: getattr(SEVEN_B, name) for name in SEVEN_B.__slots__}
    entries = tuple(
        replace(one, effect=counted[one.configuration], shape=shape)
        for one in table.entries
        if one.configuration in counted
    )
    untimed = replace(table, timings=(), entries=entries)
    wanted = Bounds(gain=1.15, drop=0.9)
    found = asked(untimed, criteria(by=f"predicted:{card}", confirm=wanted, reject=None))
    gains = {one.configuration: one.gain.value for one in found.candidates if one.gain}
    assert gains["k2_last"] > 1.15
    assert gains["k3_first"] == pytest.approx(1.0, abs=0.02)
    assert found.answer == "confirmed"
    assert found.reason == (
        f"k2_last reaches 1.15x by speed predicted for the {card} within 90 points of k1_first on arith."
    )
    assert found.basis.startswith(f"Speed predicted for the {card} at batch 1")
    assert "Nothing was timed there" in found.basis
    by_work = asked(untimed, criteria(by="work", confirm=wanted, reject=None))
    assert {one.configuration for one in by_work.candidates if one.gain and one.gain.value > 1.15} == {
        "k2_last",
        "k3_first",
    }
    unknown = replace(untimed, entries=tuple(replace(one, shape=None) for one in entries))
    assert asked(unknown, criteria(by=f"predicted:{card}", confirm=wanted, reject=None)).answer == "undecided"
