"""Tables out of a store: what enters, what stays out, and what each field is taken from."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from stores import NAMES, filled
from sweeps import SHAPE, TASK

from unmask.analysis import samples
from unmask.analysis.gains import speedup_of
from unmask.analysis.likeness import (
    acts,
    alike,
    behaviour,
    flops,
    reuse_fraction,
    spec_of,
    subset_axis,
    threshold,
    work_ratio,
)
from unmask.analysis.samples import compare, difference
from unmask.analysis.stored import experiment_table, own_table
from unmask.analysis.table import ConfigurationResult, Planned, joined
from unmask.errors import UnmaskError
from unmask.store import RunFolder, Store
from unmask.store.experiments import read_experiment
from unmask.store.result import SharedWork


def test_an_experiment_becomes_a_table(tmp_path: Path) -> None:
    store, made = filled(tmp_path)
    table = own_table(store)
    assert [one.configuration for one in table.entries] == list(NAMES)
    about = table.experiment("sweep")
    assert about.control == "k1_first"
    assert about.success is not None
    assert about.success.candidates == ("k2_*",)
    assert about.missing == tuple(
        Planned(name, TASK) for name in ("k2_middle", "k1_last", "k3_middle", "k3_last")
    )
    assert not table.foreign
    found = table.groups()[0].entry("k2_last")
    expected = next(one for one in made.entries if one.configuration == "k2_last")
    assert found is not None
    assert (found.value, found.rows, found.tokens) == (expected.value, expected.rows, expected.tokens)
    assert (found.answers, found.policy, found.decode) == (expected.answers, expected.policy, expected.decode)
    assert (found.truncated, found.resumed, found.run_tokens_per_second) == (3, 2, 55.5)
    assert (found.layers, found.shape) == (12, SHAPE)
    assert found.provenance["machine"] == "Some CPU"
    assert found.samples is not None
    assert found.samples.is_file()
    assert reuse_fraction(found) == pytest.approx(reuse_fraction(expected) or 0)
    assert flops(found) == expected.effect["generation"].flops - 4000
    timing = table.timing("sweep", "k2_last")
    assert timing is not None
    assert flops(timing) == timing.effect["generation"].flops - 2000


def test_what_was_taken_over_is_not_computed(tmp_path: Path) -> None:
    """Two configurations with the same ledgers, half of whose work one of them took over."""
    _, made = filled(tmp_path)
    control = made.entries[0]
    whole = control.effect["generation"].flops
    taking = replace(control, shared={"generation": SharedWork(positions=1, flops=whole // 2, forwards=1)})
    assert work_ratio(control, taking) == pytest.approx(0.5)


def test_timings_are_taken_over_round_by_round(tmp_path: Path) -> None:
    store, made = filled(tmp_path)
    table = own_table(store)
    assert {one.configuration for one in table.timings} == set(NAMES)
    found = speedup_of(table, "sweep", "k2_last", "k1_first")
    expected = speedup_of(made, "sweep", "k2_last", "k1_first")
    assert found == expected
    assert found is not None
    assert found.rounds == 5
    timing = table.timing("sweep", "k2_last")
    control = table.timing("sweep", "k1_first")
    assert timing is not None
    assert control is not None
    assert work_ratio(control, timing) == pytest.approx(1 / 1.06, abs=1e-3)


def test_retracted_results_enter_no_table(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    planned = read_experiment(store, "sweep")
    assert planned is not None
    RunFolder(store.runs_folder / planned.members[2].folder).retract("the node was broken")
    table = own_table(store)
    assert [one.configuration for one in table.entries] == [name for name in NAMES if name != "k2_first"]
    assert table.experiment("sweep").retracted == (Planned("k2_first", TASK),)


def test_a_recipe_that_is_no_longer_understood_costs_the_criteria_only(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    file = store.root / "experiments" / "sweep" / "experiment.json"
    file.write_text(file.read_text().replace("hypothesis", "hypothesys"), encoding="utf-8")
    table = own_table(store)
    assert table.experiment("sweep").success is None
    assert len(table.entries) == len(NAMES)


def test_an_unknown_experiment_is_told_with_those_that_exist(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    with pytest.raises(UnmaskError, match="there are sweep"):
        experiment_table(store, "nothing")
    assert own_table(Store.at(tmp_path / "empty")).entries == ()


def test_rows_are_paired_by_their_id_whatever_their_order(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    one, other = own_table(store).entries[2:4]
    straight = difference(one, other)
    assert one.samples is not None
    lines = one.samples.read_text(encoding="utf-8").splitlines()
    one.samples.write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    assert difference(one, other) == straight
    assert straight is not None
    assert straight.count == 300
    one.samples.write_text("\n".join(lines[:200]) + "\n", encoding="utf-8")
    assert difference(one, other) is None
    with pytest.raises(
        UnmaskError, match=r"holds 200 of 300 rows; run it again with `unmask run RECIPE --force"
    ):
        compare(one, other)
    one.samples.unlink()
    assert difference(one, other) is None


def test_only_a_few_runs_are_held_in_memory(tmp_path: Path) -> None:
    samples._read.cache_clear()
    for number in range(samples.KEPT + 5):
        path = tmp_path / f"{number}.jsonl"
        path.write_text('{"id": "a/1", "correct": 1.0}\n', encoding="utf-8")
        assert samples.outcomes(made(samples=path)) == {"a/1": 1.0}
    assert samples._read.cache_info().currsize == samples.KEPT


def made(**fields: object) -> ConfigurationResult:
    given = {
        "experiment": "e",
        "configuration": "c",
        "task": "t",
        "limit": None,
        "policy": {"kind": "full"},
        "decode": {"threshold": 0.9},
        "value": 0.5,
    }
    return ConfigurationResult(**{**given, **fields})  # type: ignore[arg-type]


def test_what_must_decode_alike() -> None:
    reuse = {"kind": "layer_reuse", "k": 2, "layers": "first", "unit": "output"}
    plain, control = made(), made(policy={**reuse, "k": 1})
    first, last = made(policy=reuse), made(policy={**reuse, "layers": "last"})
    residual = made(policy={**reuse, "unit": "residual"})
    lower = made(decode={"threshold": 0.8})
    unknown = made(policy={"kind": "new", "list": [1, {"a": 2}]})
    assert behaviour(plain) == behaviour(control) == behaviour(lower) == "baseline"
    assert [len(group) for group in alike([plain, control, first, last, residual, lower])] == [2, 2, 1, 1]
    assert not acts(control)
    assert all(acts(one) for one in (first, residual, unknown))
    assert threshold(lower) == 0.8
    assert threshold(first) is None
    assert spec_of(unknown) is None
    assert subset_axis([plain, control, first, last, residual]) == [[first, last]]
    assert behaviour(made(policy={})) == "baseline"
    lost = made(policy={"kind": "layer_reuse", "layers": "auto", "calibration": "gone.npz", "share": 0.5})
    assert acts(lost)


def test_own_and_foreign_come_together_only_when_asked(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    own = own_table(store)
    other = replace(
        own,
        experiments=(replace(own.experiments[0], name="theirs", foreign=True),),
        entries=tuple(replace(one, experiment="theirs", foreign=True) for one in own.entries),
        timings=(),
    )
    both = joined(own, other)
    assert both.foreign
    assert {one.foreign for one in both.entries} == {True, False}
    assert len(both.groups()) == 2


def test_the_analysis_needs_neither_torch_nor_lm_eval() -> None:
    program = (
        "import sys, unmask.analysis.frontier, unmask.analysis.verdict, unmask.analysis.table, unmask.cli.check, "
        "unmask.analysis.samples, unmask.cli.compare; "
        "print([name for name in ('torch', 'transformers', 'lm_eval', 'datasets', 'scipy') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
