"""Every guard finds its planted fault, says it with figures, and is silent on a clean sweep."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sweeps import PROVENANCE, SUCCESS, changed, clean, effect, policy, retimed, spoiled

from unmask.analysis.guards import GUARDS, Finding, run_guards
from unmask.analysis.table import (
    AnalysedExperiment,
    ConfigurationResult,
    ConfigurationTiming,
    StandIn,
    Table,
    joined,
)
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store.result import Conditions, Effect, MeasuredSpeedup
from unmask.store.twins import Twin

Plant = Callable[[Table], Table]


def speedup(value: float) -> MeasuredSpeedup:
    return MeasuredSpeedup(median=value, low=value * 0.995, high=value * 1.005, coverage=0.94)


def reuses(one: ConfigurationResult | ConfigurationTiming) -> bool:
    return one.configuration.startswith(("k2", "k3"))


def subset(one: ConfigurationResult) -> bool:
    return one.configuration.startswith("k2")


def nothing(one: ConfigurationResult | ConfigurationTiming) -> dict[str, Effect]:
    part = effect(one.configuration, 100, 100)["generation"]
    return {"generation": msgspec.structs.replace(part, branch_rows=1000, branch_rows_skipped=0)}


def again(table: Table) -> Table:
    """The same figures in a second experiment, with other answers."""
    entries = tuple(
        replace(one, experiment="later", answers=f"other {one.answers}", tokens=(one.tokens or 0) // 5)
        for one in table.entries
    )
    return joined(table, Table((AnalysedExperiment(name="later", control="k1_first"),), entries))


def few(table: Table) -> Table:
    return spoiled(table, lambda _: True, rows=10)


def asks(speed: float) -> Plant:
    wanted = SuccessSpec(
        task=SUCCESS.task,
        control="k1_first",
        candidates=SUCCESS.candidates,
        confirm=Bounds(speedup=speed, drop=0.05),
    )
    return lambda table: replace(table, experiments=(replace(table.experiments[0], success=wanted),))


def standing(table: Table, twin: Twin | None) -> Table:
    """The same as if one run had stood for two of the controls."""
    first = table.entries[0]
    stand_in = StandIn("k1_first", ("k1_last",), first.task, first.limit, twin)
    return replace(table, experiments=(replace(table.experiments[0], stand_ins=(stand_in,)),))


FAULTS: dict[str, tuple[str, str, Plant]] = {
    "same answers": (
        "identical-results",
        "warning",
        lambda table: spoiled(
            table, lambda one: one.configuration in ("k1_first", "k2_last"), answers="same"
        ),
    ),
    "same figures": (
        "identical-results",
        "invalid",
        lambda table: spoiled(table, lambda _: True, answers=None, tokens=None, value=0.6653),
    ),
    "undeclared idleness": (
        "nothing-skipped",
        "invalid",
        lambda table: changed(table, "k2_last", effect=nothing(table.entries[5])),
    ),
    "declared idleness": (
        "nothing-skipped",
        "warning",
        lambda table: changed(
            table, "k2_last", effect={"scoring": Effect(branch_rows=9, inactive="one forward a choice")}
        ),
    ),
    "controls answer differently": (
        "controls-differ",
        "invalid",
        lambda table: changed(table, "k1_middle", answers="other"),
    ),
    "controls have other accuracies": (
        "controls-differ",
        "invalid",
        lambda table: changed(table, "k1_last", value=0.7),
    ),
    "controls are not equally fast": (
        "controls-differ",
        "warning",
        lambda table: retimed(table, lambda one: one.configuration == "k1_last", speedup=speedup(1.08)),
    ),
    "a slow twin": (
        "speed-outlier",
        "warning",
        lambda table: retimed(table, lambda one: one.configuration == "k1_last", tokens_per_second=40.0),
    ),
    "a slow control": (
        "speed-outlier",
        "invalid",
        lambda table: retimed(table, lambda one: one.configuration == "k1_first", tokens_per_second=40.0),
    ),
    "one set of answers, two accuracies": (
        "contradiction",
        "invalid",
        lambda table: spoiled(table, lambda one: one.configuration in ("k2_last", "t0.8"), answers="same"),
    ),
    "equal by construction, equal tokens, two accuracies": (
        "contradiction",
        "invalid",
        lambda table: replace(
            spoiled(table, subset, answers=None, tokens=57697),
            entries=tuple(
                replace(one, answers=None, tokens=57697, policy=policy(one.configuration, "output"))
                if subset(one)
                else one
                for one in table.entries
            ),
        ),
    ),
    "old accuracies": ("stale-accuracy", "invalid", again),
    "answers differ, one accuracy": (
        "stale-accuracy",
        "warning",
        lambda table: spoiled(table, reuses, value=0.8),
    ),
    "answers run on": ("collapse", "invalid", lambda table: changed(table, "k3_first", tokens=400_000)),
    "answers grow": ("collapse", "warning", lambda table: changed(table, "k3_first", tokens=200_000)),
    "answers break off": ("collapse", "warning", lambda table: changed(table, "k3_first", tokens=20_000)),
    "answers are cut": ("collapse", "invalid", lambda table: changed(table, "k3_first", truncated=1500)),
    "some answers are cut": ("collapse", "warning", lambda table: changed(table, "k3_first", truncated=400)),
    "the limit is too short": (
        "cut-off",
        "warning",
        lambda table: replace(
            spoiled(table, lambda _: True),
            entries=tuple(replace(one, truncated=(one.rows or 0) * 9 // 10) for one in table.entries),
        ),
    ),
    "out of reach": ("beyond-ceiling", "invalid", asks(3.0)),
    "partly out of reach": ("beyond-ceiling", "warning", asks(1.13)),
    "ten rows": ("too-few-samples", "invalid", few),
    "four hundred rows": (
        "too-few-samples",
        "warning",
        lambda table: spoiled(table, lambda _: True, rows=400, samples=None),
    ),
    "less work and slower": (
        "speed-and-ledger",
        "warning",
        lambda table: retimed(table, lambda one: one.configuration == "k3_last", speedup=speedup(0.9)),
    ),
    "more steps than the skip is worth": (
        "speed-and-ledger",
        "info",
        lambda table: retimed(
            table,
            lambda one: one.configuration == "k3_last",
            speedup=speedup(0.9),
            effect={
                "generation": msgspec.structs.replace(
                    effect("k3_last", 16, 1000)["generation"], flops=1_100_000_000_000
                )
            },
        ),
    ),
    "faster than the work explains": (
        "speed-and-ledger",
        "warning",
        lambda table: retimed(table, lambda one: one.configuration == "k3_last", speedup=speedup(1.6)),
    ),
    "said to skip and slower": (
        "speed-and-ledger",
        "invalid",
        lambda table: replace(
            spoiled(table, lambda _: True, foreign=True),
            entries=tuple(
                replace(one, foreign=True, run_tokens_per_second=35.0 if reuses(one) else 50.0)
                for one in table.entries
            ),
        ),
    ),
    "other load": (
        "speed-source",
        "warning",
        lambda table: retimed(table, lambda _: True, conditions=Conditions(other_processes=3)),
    ),
    "uncounted load": (
        "speed-source",
        "warning",
        lambda table: retimed(table, lambda _: True, conditions=Conditions(load_before=7.0)),
    ),
    "a throttled clock": (
        "speed-source",
        "warning",
        lambda table: retimed(
            table, lambda _: True, conditions=Conditions(other_processes=0, throttled=True)
        ),
    ),
    "another machine": (
        "speed-source",
        "info",
        lambda table: retimed(table, lambda _: True, provenance={**PROVENANCE, "machine": "A GPU"}),
    ),
    "other weights": (
        "mixed-provenance",
        "invalid",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "weights": "x" * 64}),
    ),
    "a checkpoint of its own": (
        "other-checkpoint",
        "info",
        lambda table: changed(
            table,
            "k2_last",
            model="another/checkpoint",
            provenance={**PROVENANCE, "weights": "x" * 64, "dtype": "bfloat16"},
        ),
    ),
    "other data": (
        "mixed-provenance",
        "invalid",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "data": {"arith": "y" * 64}}),
    ),
    "another dtype": (
        "mixed-provenance",
        "invalid",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "dtype": "bfloat16"}),
    ),
    "another commit": (
        "mixed-provenance",
        "warning",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "commit": "e" * 40}),
    ),
    "another lm_eval": (
        "mixed-provenance",
        "warning",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "lm_eval": "0.4.14"}),
    ),
    "uncommitted changes": (
        "mixed-provenance",
        "warning",
        lambda table: changed(table, "k2_last", provenance={**PROVENANCE, "dirty": True}),
    ),
    "a subset axis under output": (
        "subsets-within-error",
        "warning",
        lambda table: replace(
            table,
            entries=tuple(
                replace(one, policy=policy(one.configuration, "output"), value=0.8 + 0.001 * number)
                if subset(one)
                else one
                for number, one in enumerate(table.entries)
            ),
        ),
    ),
    "a subset axis without effect": (
        "subsets-within-error",
        "info",
        lambda table: replace(
            table,
            entries=tuple(
                replace(one, value=0.8 + 0.001 * number) if subset(one) else one
                for number, one in enumerate(table.entries)
            ),
        ),
    ),
    "damaged rows": (
        "damaged-rows",
        "invalid",
        lambda table: changed(table, "k2_last", samples=Path(__file__)),
    ),
    "deleted rows": (
        "damaged-rows",
        "warning",
        lambda table: changed(table, "k2_last", samples=Path("gone.jsonl")),
    ),
    "one round": (
        "speed-source",
        "warning",
        lambda table: retimed(table, lambda _: True, seconds=(10.0,)),
    ),
    "speeds of other weights": (
        "mixed-provenance",
        "invalid",
        lambda table: retimed(table, lambda _: True, provenance={**PROVENANCE, "weights": "x" * 64}),
    ),
    "speeds of another commit": (
        "mixed-provenance",
        "warning",
        lambda table: retimed(table, lambda _: True, provenance={**PROVENANCE, "commit": "e" * 40}),
    ),
    "a twin answers otherwise": (
        "twins-differ",
        "invalid",
        lambda table: standing(table, Twin("k1_last", 17, 3)),
    ),
    "a twin on another device": (
        "twins-differ",
        "warning",
        lambda table: standing(table, Twin("k1_last", 19, 1, "device cpu -> cuda")),
    ),
    "no twin yet": ("twins-differ", "info", lambda table: standing(table, None)),
    "a higher threshold only": (
        "no-threshold-curve",
        "info",
        lambda table: spoiled(
            table, lambda one: one.configuration.startswith("t"), decode={"threshold": 0.95}
        ),
    ),
    "no lower threshold": (
        "no-threshold-curve",
        "info",
        lambda table: replace(
            table, entries=tuple(one for one in table.entries if not one.configuration.startswith("t"))
        ),
    ),
}


def of(guard: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.guard == guard]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    guard, severity, plant = FAULTS[fault]
    table = clean()
    assert of(guard, run_guards(table)) == []
    found = of(guard, run_guards(plant(table)))
    assert [finding.severity for finding in found if finding.severity == severity], found
    assert all(finding.sentence and finding.advice and finding.configurations for finding in found)
    assert all(finding.sentence.endswith(".") for finding in found)


def test_every_guard_has_a_fault_and_explains_itself() -> None:
    assert {guard for guard, _, _ in FAULTS.values()} == {guard.name for guard in GUARDS}
    for guard in GUARDS:
        severities = {severity for name, severity, _ in FAULTS.values() if name == guard.name}
        assert guard.severity in severities
        assert guard.title
        assert guard.explanation.endswith(".")
        assert guard.advice.endswith(".")


@pytest.mark.parametrize("rows", [1500, 4000])
def test_false_alarms_are_rare_on_clean_sweeps(rows: int) -> None:
    """Each guard, over 150 clean sweeps: at most one in twenty."""
    sweeps = 150
    alarms: Counter[str] = Counter()
    for seed in range(sweeps):
        alarms.update({finding.guard for finding in run_guards(clean(seed, rows))})
    assert {guard: count / sweeps for guard, count in alarms.items() if count / sweeps > 0.05} == {}


def test_false_alarms_are_rare_with_rows_on_disk(tmp_path: Path) -> None:
    alarms: Counter[str] = Counter()
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        alarms.update(finding.guard for finding in run_guards(clean(seed, 1500, folder)))
    assert alarms == Counter()


def test_rows_on_disk_show_a_difference_that_counts_alone_do_not(tmp_path: Path) -> None:
    """500 rows are too few if errors were independent, but paired ones rarely change."""
    narrow = SuccessSpec(
        task=SUCCESS.task, control="k1_first", candidates=("k2_last",), confirm=SUCCESS.confirm
    )
    table = clean(0, 500, tmp_path)
    table = replace(table, experiments=(replace(table.experiments[0], success=narrow),))
    blind = spoiled(table, lambda _: True, samples=None)
    assert len(of("too-few-samples", run_guards(blind))) == 1
    assert of("too-few-samples", run_guards(table)) == []


def test_the_worst_comes_first() -> None:
    found = run_guards(few(FAULTS["uncommitted changes"][2](clean())))
    order = [finding.severity for finding in found]
    assert order == sorted(order, key=("invalid", "warning", "info").index)
    assert order[0] == "invalid"


def test_a_lower_threshold_is_not_bound_by_a_policys_ceiling() -> None:
    wanted = SuccessSpec(
        task=SUCCESS.task, control="k1_first", candidates=("t0.*",), confirm=Bounds(speedup=1.1, drop=0.05)
    )
    table = clean()
    table = replace(table, experiments=(replace(table.experiments[0], success=wanted),))
    assert of("beyond-ceiling", run_guards(table)) == []


def test_a_policy_of_another_version_is_compared_by_its_fields() -> None:
    """A kind that this version does not know is not taken for the baseline."""
    table = changed(clean(), "k2_last", policy={"kind": "of_the_future", "k": 9})
    assert {finding.guard for finding in run_guards(table)} <= {"subsets-within-error"}


def test_operations_of_other_blocks_are_not_compared_with_speeds() -> None:
    """A control of one row a forward takes fewer operations than its time would say."""
    fast = FAULTS["faster than the work explains"][2](clean())
    assert of("speed-and-ledger", run_guards(fast)) != []
    changes: list[Any] = [{"decode": {"threshold": 0.9, "block_size": 1}}, {"model": "another/checkpoint"}]
    for change in changes:
        other = tuple(
            replace(one, **change) if one.configuration == one.control else one for one in fast.timings
        )
        assert of("speed-and-ledger", run_guards(replace(fast, timings=other))) == []


def test_weights_may_differ_between_checkpoints_that_the_recipe_names() -> None:
    own = FAULTS["a checkpoint of its own"][2](clean())
    assert of("mixed-provenance", run_guards(own)) == []
    (found,) = of("other-checkpoint", run_guards(own))
    assert found.sentence.endswith(
        "k2_last runs another/checkpoint, the control the checkpoint of the recipe."
    )
    (entry,) = [one for one in own.entries if one.configuration == "k2_last"]
    twice = replace(entry, configuration="k3_last", provenance={**entry.provenance, "weights": "z" * 64})
    mixed = replace(
        own, entries=tuple(twice if one.configuration == "k3_last" else one for one in own.entries)
    )
    assert of("mixed-provenance", run_guards(mixed)) != []


def test_an_empty_table_has_no_findings() -> None:
    assert run_guards(Table((), ())) == []
    assert run_guards(Table((AnalysedExperiment(name="planned"),), ())) == []


def cut(table: Table, share: float) -> list[Finding]:
    entries = tuple(
        replace(one, truncated=round((one.rows or 0) * share), decode={**one.decode, "max_new_tokens": 64})
        for one in table.entries
    )
    return [found for found in run_guards(replace(table, entries=entries)) if found.guard == "cut-off"]


def test_one_finding_names_all_configurations_that_the_limit_cuts_off() -> None:
    table = clean(0)
    (found,) = cut(table, 0.9)
    assert found.configurations == tuple(one.configuration for one in table.entries)
    assert "90 % of the answers of" in found.sentence
    assert "at max_new_tokens = 64" in found.sentence
    assert cut(table, 0.04) == []


def test_a_share_is_one_of_all_draws_of_an_answer() -> None:
    table = clean(0)
    entries = tuple(
        replace(one, effect={"generation": Effect(requests=4 * (one.rows or 0))}) for one in table.entries
    )
    (found,) = cut(replace(table, entries=entries), 3.6)
    assert "90 % of the answers of" in found.sentence


def test_what_only_a_policy_cuts_off_is_said_once() -> None:
    findings = run_guards(changed(clean(0), "k3_first", truncated=1500))
    assert [found.guard for found in findings if "cut off" in found.sentence] == ["collapse"]


@pytest.mark.parametrize(
    ("guard", "fields"),
    [
        ("collapse", {"tokens": 400_000}),
        ("collapse", {"truncated": 1500}),
        ("nothing-skipped", {"effect": {"scoring": Effect(branch_rows=9, inactive="one forward a choice")}}),
    ],
)
def test_one_finding_names_all_configurations_it_concerns(guard: str, fields: dict[str, object]) -> None:
    table = spoiled(clean(0), reuses, **fields)
    concerned = {one.configuration for one in table.entries if reuses(one)}
    (found,) = [found for found in run_guards(table) if found.guard == guard]
    assert set(found.configurations) == concerned
    assert len(concerned) > 2
    assert all(name in found.sentence for name in concerned)
