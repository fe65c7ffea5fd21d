"""The first experiments' own published numbers: the guards find by themselves what took their authors weeks."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from seed_figures import AFTER_THE_FIX, PUBLISHED, Figure, path_of, summary

from unmask.analysis.foreign import foreign_table
from unmask.analysis.guards import Finding, run_guards
from unmask.analysis.table import Table
from unmask.analysis.verdict import verdict
from unmask.cli.check import check
from unmask.evaluation.catalogue import metric_of
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store.foreign import foreign_record, import_tree
from unmask.store.store import Store

CRITERIA = SuccessSpec(
    task="gsm8k",
    control="k1_first",
    candidates=("k2_*", "k3_*"),
    confirm=Bounds(speedup=1.2, drop=0.05),
)
"""Their proposal: more than 1.2x the throughput for less than 5 % of accuracy, at k = 2 or k = 3."""
NINE = tuple(f"k{k}_{layers}" for k in (1, 2, 3) for layers in ("first", "last", "middle"))


def table(figures: tuple[Figure, ...], success: SuccessSpec | None = None) -> Table:
    records = []
    for figure in figures:
        content = summary(figure)
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        records.append(foreign_record("seed", path_of(figure), digest, content, metric_of))
    return foreign_table("seed", records, success)


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return run_guards(table(PUBLISHED))


def one(findings: list[Finding], guard: str, task: str) -> Finding:
    found = [finding for finding in findings if (finding.guard, finding.task) == (guard, task)]
    assert len(found) == 1, found
    return found[0]


def test_mmlu_is_identical_in_all_nine(findings: list[Finding]) -> None:
    found = one(findings, "identical-results", "mmlu")
    assert found.severity == "invalid"
    assert found.configurations == NINE
    assert "9 results" in found.sentence
    assert "66.53 %" in found.sentence
    assert [finding.task for finding in findings if finding.guard == "identical-results"] == ["mmlu"]


def test_k1_first_ran_at_less_than_half_the_speed(findings: list[Finding]) -> None:
    found = one(findings, "speed-outlier", "gsm8k")
    assert found.severity == "invalid"
    assert found.configurations == ("k1_first",)
    assert "22.75" in found.sentence
    assert "factor of 2.18" in found.sentence
    assert "it is the control" in found.sentence


def test_the_controls_differ_in_speed_and_in_nothing_else(findings: list[Finding]) -> None:
    found = one(findings, "controls-differ", "gsm8k")
    assert found.severity == "warning"
    assert found.configurations == ("k1_first", "k1_last", "k1_middle")
    assert "tokens/s" in found.sentence
    assert not [one for one in findings if one.guard == "controls-differ" and one.severity == "invalid"]


@pytest.mark.parametrize(("k", "apart"), [(2, "0.2 points"), (3, "0.5 points")])
def test_subsets_differ_by_less_than_their_error(findings: list[Finding], k: int, apart: str) -> None:
    found = [
        finding
        for finding in findings
        if finding.guard == "subsets-within-error"
        and finding.task == "gsm8k"
        and finding.configurations == (f"k{k}_first", f"k{k}_last", f"k{k}_middle")
    ]
    assert [finding.severity for finding in found] == ["warning"]
    assert apart in found[0].sentence
    assert "equal by construction" in found[0].sentence


def test_throughput_falls_while_work_is_said_to_be_skipped(findings: list[Finding]) -> None:
    found = one(findings, "speed-and-ledger", "gsm8k")
    assert found.severity == "invalid"
    assert "all 6 configurations" in found.sentence
    assert "33.48 to 40.51 against 49.54 tokens/s" in found.sentence


def test_speeds_come_from_accuracy_runs_on_several_nodes_and_from_uncommitted_code(
    findings: list[Finding],
) -> None:
    assert one(findings, "speed-source", "gsm8k").severity == "warning"
    told = [one.sentence for one in findings if (one.guard, one.task) == ("mixed-provenance", "gsm8k")]
    assert any("8 of 9 results" in sentence for sentence in told)
    assert any("3 different hosts" in sentence for sentence in told)


def test_equal_token_counts_with_different_accuracies_contradict_each_other(findings: list[Finding]) -> None:
    """Not in their log: 57,697 tokens both times, 41.43 and 40.00 %."""
    found = one(findings, "contradiction", "minerva_math")
    assert found.configurations == ("k2_first", "k2_middle")
    assert "57,697" in found.sentence


def test_small_runs_are_too_small(findings: list[Finding]) -> None:
    for task in ("minerva_math", "ifeval"):
        assert one(findings, "too-few-samples", task).severity == "warning", "no criterion names the task"
    assert not [one for one in findings if one.guard == "too-few-samples" and one.task in ("gsm8k", "mmlu")]


def test_ten_rows_decide_nothing() -> None:
    """After their fix k = 2 was at 70 %, the control at 60 %: ten rows each."""
    found = one(run_guards(table(AFTER_THE_FIX)), "too-few-samples", "gsm8k")
    assert found.severity == "warning", "no criterion names the task"
    assert "10 rows" in found.sentence
    assert "with 10 rows only losses of 61.7 points or more can be excluded" in found.sentence


def test_the_criterion_was_out_of_reach_at_k_2(findings: list[Finding]) -> None:
    """Twelve of 28 layers on sub-block forwards: 1.15x at most on the roofline of their GPU."""
    told = one(findings, "beyond-ceiling", "gsm8k")
    assert told.severity == "info"
    assert "1.15x (k = 2)" in told.sentence
    found = one(run_guards(table(PUBLISHED, CRITERIA)), "beyond-ceiling", "gsm8k")
    assert found.severity == "warning"
    assert found.configurations == ("k2_first", "k2_last", "k2_middle")
    assert "the criterion asks for more than 1.2x" in found.sentence
    assert "12 of 28 layers skipped on sub-block forwards" in found.sentence
    only_two = SuccessSpec(
        task="gsm8k", control="k1_first", candidates=("k2_*",), confirm=Bounds(speedup=1.2, drop=0.05)
    )
    assert one(run_guards(table(PUBLISHED, only_two)), "beyond-ceiling", "gsm8k").severity == "invalid"


def test_figures_without_rows_and_timing_runs_decide_nothing() -> None:
    found = verdict(table(PUBLISHED, CRITERIA), "seed")
    assert found.answer == "undecided"
    assert "timing run" in " ".join(found.missing)


def test_the_later_figures_with_old_accuracies_are_found() -> None:
    """Their corrected code: all accuracies as before, 3,572 tokens where there had been 18,493."""
    before = tuple(
        figure._replace(limit=100, tokens=18_493) for figure in PUBLISHED if figure.task == "gsm8k"
    )
    after = tuple(figure._replace(tokens=3_572) for figure in before)
    records = [
        foreign_record(name, path_of(figure), "0", summary(figure), metric_of)
        for name, figures in (("before", before), ("after", after))
        for figure in figures
    ]
    tables = [foreign_table(name, [r for r in records if r.name == name]) for name in ("before", "after")]
    joint = Table((*tables[0].experiments, *tables[1].experiments), (*tables[0].entries, *tables[1].entries))
    found = [finding for finding in run_guards(joint) if finding.guard == "stale-accuracy"]
    assert [finding.severity for finding in found] == ["invalid"]
    assert "18,493 then 3,572 tokens" in found[0].sentence


def imported(folder: Path) -> Path:
    for figure in PUBLISHED:
        path = folder / "files" / path_of(figure)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(summary(figure)), encoding="utf-8")
    store = folder / "store"
    result = import_tree(folder / "files", Store.at(store), "seed", metric_of)
    assert len(result.records) == 28
    assert result.problems == []
    return store


def run_check(*arguments: Any) -> Any:
    return CliRunner().invoke(check, [str(argument) for argument in arguments])


def test_unmask_check_tells_all_of_it(tmp_path: Path) -> None:
    store = imported(tmp_path)
    told = run_check("--store", store, "--foreign", "seed", "--explain")
    assert told.exit_code == 1
    for part in ("identical-results", "speed-outlier", "22.75", "1.15x", "What to do:", "28 results"):
        assert part in told.output
    assert run_check("--store", store).output == run_check("--store", store, "--foreign", "seed").output
    answer = run_check("--store", store, "--json")
    assert answer.exit_code == 1
    document = json.loads(answer.output)
    assert document["imports"] == ["seed"]
    assert document["results"] == 28
    assert {finding["severity"] for finding in document["findings"]} == {"invalid", "warning", "info"}


def test_unmask_check_says_what_is_missing(tmp_path: Path) -> None:
    for arguments, sentence in (
        ((), "nothing to check"),
        (("--foreign", "none"), "no import 'none'"),
        (("nothing",), "no experiment nothing in"),
    ):
        found = run_check("--store", tmp_path, *arguments)
        assert found.exit_code == 1
        assert sentence in str(found.exception)
