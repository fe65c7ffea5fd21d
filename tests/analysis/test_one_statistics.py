"""Table, p-value, sentences and verdict go by one statistics, so they cannot contradict each other."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import TASK, clean, decode, effect, policy

from unmask.analysis.likeness import must_agree
from unmask.analysis.losses import comparisons_of, loss_of
from unmask.analysis.samples import accuracy_interval, compare
from unmask.analysis.statistics import wilson
from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, Planned, Table
from unmask.analysis.verdict import confirms, could_confirm, rejects, verdict
from unmask.report.document import TaskPart
from unmask.report.gather import task_part
from unmask.report.sentences import chance
from unmask.report.tables import columns_of
from unmask.spec.recipe import Bounds, SuccessSpec

INSTRUCTIONS = "inst_level_strict_acc,none"
NAMES = ("k2_first", "k2_middle", "k2_last", "k3_first", "k3_last")
CRITERIA = SuccessSpec(
    task=TASK,
    control="k1_first",
    candidates=("k2_*", "k3_*"),
    by="work",
    confirm=Bounds(gain=1.05, drop=0.05),
    reject=Bounds(gain=1.0, drop=0.2),
)


def entry_of(name: str, values: np.ndarray, folder: Path, form: str) -> ConfigurationResult:
    """A result with its rows on disk: one a sample, in subtasks, or several instructions of a prompt."""
    path = folder / f"{name}.jsonl"
    rows: list[dict[str, Any]]
    if form == "instructions":
        prompts = np.array_split(values, max(2, len(values) // 3))
        rows = [
            {"id": f"{TASK}/{number}", "correct": None, "metrics": {INSTRUCTIONS: part.astype(bool).tolist()}}
            for number, part in enumerate(prompts)
        ]
    else:
        parts = 12 if form == "subtasks" else 1
        rows = [
            {"id": f"{TASK}_{number % parts}/{number}", "correct": value}
            for number, value in enumerate(values.tolist())
        ]
    path.write_text("".join(json.dumps({**row, "answer": name}) + "\n" for row in rows), encoding="utf-8")
    return ConfigurationResult(
        experiment="sweep",
        configuration=name,
        task=TASK,
        limit=None,
        policy=policy(name),
        decode=decode(name),
        value=float(values.mean()),
        rows=len(rows),
        metric=INSTRUCTIONS if form == "instructions" else "exact_match,none",
        answers=None,
        effect=effect(name, len(values), 60 * len(values)),
        layers=12,
        run=name,
        samples=path,
    )


def table_of(seed: int, rows: int, form: str, folder: Path, planned: int = 0) -> Table:
    """Five configurations whose losses lie between nothing and a half, and two that cannot differ from the control."""
    random = np.random.default_rng(seed)
    base = (random.random(rows) < random.uniform(0.3, 0.95)).astype(float)
    if form == "shares":
        base = np.round(random.random(rows), 2)
    found = {"k1_first": base, "k1_last": base}
    for name in NAMES:
        lost = random.random(rows) < random.choice([0.0, 0.05, 0.2, 0.5])
        other = np.round(random.random(rows), 2) if form == "shares" else random.random(rows) < 0.3
        found[name] = np.where(lost, other, base).astype(float)
    entries = [entry_of(name, values, folder, form) for name, values in found.items()]
    idle = msgspec.structs.replace(
        entries[2].effect["generation"], branch_rows_skipped=0, inactive="single-token targets take one step"
    )
    entries.append(
        replace(
            entries[0],
            configuration="trim",
            run="trim",
            policy={"kind": "trim", "keep": 0.0},
            effect={"generation": idle},
        )
    )
    about = AnalysedExperiment(
        name="sweep",
        control="k1_first",
        success=CRITERIA,
        missing=tuple(Planned(f"k2_planned{number}", TASK) for number in range(planned)),
    )
    return Table((about,), tuple(entries))


def beyond_chance(task: TaskPart) -> set[str]:
    """Who is said to differ."""
    return {
        name
        for sentence in chance(task)
        if sentence.startswith("Beyond chance, ")
        for name in sentence.removeprefix("Beyond chance, ").split(" lose")[0].split(" gain")[0].split(", ")
    }


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(4, 300),
    form=st.sampled_from(["rows", "subtasks", "instructions", "shares"]),
    planned=st.integers(0, 3),
)
def test_interval_p_value_sentence_and_verdict_say_the_same(
    seed: int, rows: int, form: str, planned: int
) -> None:
    with TemporaryDirectory() as folder:
        table = table_of(seed, rows, form, Path(folder), planned)
        (group,) = table.groups()
        task = task_part(table, group, "task")
        judged = verdict(table, "sweep", findings=())
        said = beyond_chance(task)
        drop, p_cell = columns_of(task)[2:4]
        assert task.comparisons.count == len(NAMES) + planned
        losses = {}
        for line in task.lines:
            if line.is_control:
                continue
            loss = losses[line.name] = line.loss
            assert loss is not None
            assert loss.paired
            if line.name in ("k1_last", "trim"):
                assert loss.equal
                assert (loss.p_value, loss.differs, line.name in said) == (None, False, False)
                assert str(drop.cell(line)) == "equal by construction"
                continue
            assert loss.p_value is not None
            assert (loss.p_value < 0.05) == loss.differs == (line.name in said)
            assert loss.differs == (not loss.interval.low <= 0 <= loss.interval.high)
            assert loss.interval.level == task.comparisons.level
            assert (float(p_cell.cell(line).sort or 0.0) < 0.05) == loss.differs
        for candidate in judged.candidates:
            assert candidate.loss == losses.get(candidate.configuration)
            if candidate.loss is None:
                continue
            if candidate.loss.differs and candidate.loss.value > 0 and rejects(candidate, CRITERIA):
                assert not could_confirm(candidate, CRITERIA)
            if confirms(candidate, CRITERIA):
                assert candidate.loss.interval.high < 0.05


def test_the_level_is_that_of_all_comparisons_and_stands_in_the_heading(tmp_path: Path) -> None:
    table = table_of(1, 200, "rows", tmp_path)
    (group,) = table.groups()
    task = task_part(table, group, "task")
    drop = columns_of(task)[2]
    assert drop.title == "Drop vs k1_first (points, 99 % interval)"
    assert drop.explanation.endswith("99 % intervals, so that all five comparisons hold together at 95 %.")
    assert (
        "The verdict goes by the table's 99 % intervals, so that"
        in verdict(table, "sweep", findings=()).basis
    )
    alone = replace(table, entries=(table.entries[0], table.entries[2]))
    assert comparisons_of(alone, alone.groups()[0]).level == 0.95


def test_names_for_one_decoding_are_one_comparison(tmp_path: Path) -> None:
    """Under `output` the choice of layers changes nothing, so six names are two comparisons."""
    table = clean(0, 60, tmp_path)
    entries = tuple(
        replace(one, policy=policy(one.configuration, "output")) if one.configuration[0] == "k" else one
        for one in table.entries
        if not one.configuration.startswith("t")
    )
    cut = replace(table, entries=entries, timings=())
    assert comparisons_of(cut, cut.groups()[0]).count == 2


def test_a_threshold_changes_no_scores(tmp_path: Path) -> None:
    table = table_of(3, 50, "rows", tmp_path)
    control = table.entries[0]
    scoring = {"scoring": control.effect["generation"]}
    one, other = (
        replace(control, configuration=name, decode={"threshold": value, "sub_block_size": 8}, effect=scoring)
        for name, value in (("t0.9", 0.9), ("t0.7", 0.7))
    )
    assert must_agree(one, other)
    assert not must_agree(one, replace(other, decode={"threshold": 0.9, "sub_block_size": 4}))
    assert not must_agree(replace(one, effect=control.effect), replace(other, effect=control.effect))


def test_instructions_of_one_prompt_are_a_cluster(tmp_path: Path) -> None:
    """Forty prompts of three instructions each, all of a prompt right or wrong together: forty observations."""
    prompts = np.random.default_rng(0).random(40) < 0.7
    right = np.repeat(prompts, 3).astype(float)
    lost = np.repeat(prompts & (np.arange(40) % 6 > 0), 3).astype(float)
    control = entry_of("k1_first", right, tmp_path, "instructions")
    other = entry_of("k2_first", lost, tmp_path, "instructions")
    independent = wilson(right.sum(), len(right))
    found = accuracy_interval(control)
    assert found is not None
    assert found.method == "clustered"
    assert found.high - found.low > 1.5 * (independent.high - independent.low)
    table = Table((AnalysedExperiment(name="sweep", control="k1_first"),), (control, other))
    loss = loss_of(control, other, comparisons_of(table, table.groups()[0]))
    assert loss is not None
    assert loss.rows == 120
    assert loss.value == pytest.approx((right.sum() - lost.sum()) / 120)
    plain = loss_of(
        entry_of("k1_middle", right, tmp_path, "rows"),
        entry_of("k2_last", lost, tmp_path, "rows"),
        comparisons_of(table, table.groups()[0]),
    )
    assert plain is not None
    assert loss.interval.high - loss.interval.low > 1.5 * (plain.interval.high - plain.interval.low)
    flips = compare(control, other).flips
    assert len(flips) == int(prompts.sum() - (prompts & (np.arange(40) % 6 > 0)).sum())
