"""Imported summaries: kept as they are, weighed, listed apart, and never in two versions under one name."""

import json
from pathlib import Path
from typing import Any

import pytest
from store_cases import done

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import metric_of
from unmask.store import Store
from unmask.store.foreign import ForeignRecord, Imported, foreign_of, import_tree, imports
from unmask.store.index import records

SEED = Path(__file__).parents[3] / "shared" / "data" / "seed_summaries"


def summary(
    task: str = "gsm8k", config: str = "k1_first", accuracy: Any = 0.75, **changes: Any
) -> dict[str, Any]:
    """An invented file in the layout of the older scripts."""
    return {
        "task": task,
        "config": config,
        "timestamp": "20260101_000000",
        "accuracy": accuracy,
        "throughput": {"tokens_generated": 1000, "total_time_s": 20.0, "tokens_per_s": 50.0},
        "gpu_info": {"gpu_available": True, "gpu_name": "a GPU"},
        "git": {"commit": "c0ffee", "branch": "main", "dirty": True},
        "environment": {"python_version": "3.12.3", "torch_version": "2.9.1", "hostname": "node1"},
        "model_args": {"model_path": "a/model", "reuse_k": 1, "layer_subset": "first"},
        "eval_params": {"num_fewshot": 0, "batch_size": "1", "limit": None},
        **changes,
    }


def put(folder: Path, content: Any, task: str | None = None, config: str | None = None) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    names = content if isinstance(content, dict) else {}
    file = folder / (task or names["task"]) / (config or names["config"]) / "summary.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def load(store: Store, folder: Path, name: str = "old") -> Imported:
    return import_tree(folder, store, name, metric_of)


def only(store: Store, folder: Path, content: Any, **place: str) -> ForeignRecord:
    put(folder, content, **place)
    (record,) = load(store, folder).records
    return record


@pytest.mark.parametrize("number", [10**400, -1e200], ids=["whole", "float"])
@pytest.mark.parametrize("part", ["throughput", "eval_params", "group_results"])
def test_a_summary_with_a_number_beyond_all_bounds_is_left_out(
    store: Store, tmp_path: Path, part: str, number: float
) -> None:
    names = {"throughput": "total_time_s", "eval_params": "limit", "group_results": "gsm8k"}
    put(tmp_path, summary(**{part: {names[part]: number if part != "group_results" else {"x,y": number}}}))
    put(tmp_path, summary(config="k2"))
    loaded = load(store, tmp_path)
    assert [record.configuration for record in loaded.records] == ["k2"]
    (problem,) = loaded.problems
    assert "was left out: it holds a number with which nobody can calculate." in problem.says


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def test_a_summary_becomes_a_foreign_record_and_is_kept_byte_for_byte(store: Store, tree: Path) -> None:
    file = put(tree, json.dumps(summary(), indent=7), "gsm8k", "k1_first")
    (record,) = load(store, tree).records
    assert record.foreign is True
    assert (record.name, record.task, record.configuration, record.limit) == (
        "old",
        "gsm8k",
        "k1_first",
        None,
    )
    assert (record.value, record.told, record.tokens, record.tokens_per_second) == (0.75, 0.75, 1000, 50.0)
    assert (record.commit, record.dirty, record.host, record.gpu) == ("c0ffee", True, "node1", "a GPU")
    assert record.summary == summary()
    kept = store.root / "foreign/old/files/gsm8k/k1_first/summary.json"
    assert kept.read_bytes() == file.read_bytes()
    assert foreign_of(store, "old") == [record]


def test_foreign_records_never_count_as_runs(store: Store, tree: Path) -> None:
    done(store)
    put(tree, summary())
    load(store, tree)
    assert len(records(store)) == len(list(store.runs())) == 1


def test_importing_twice_changes_nothing_and_more_files_are_added(store: Store, tree: Path) -> None:
    put(tree, summary())
    first = load(store, tree)
    file = store.root / "foreign/old/records.json"
    before = file.stat().st_mtime_ns
    second = load(store, tree)
    assert (first.added, second.added) == (1, 0)
    assert second.records == first.records
    assert file.stat().st_mtime_ns == before
    put(tree, summary(config="k2_first"))
    assert load(store, tree).added == 1
    assert [record.configuration for record in foreign_of(store, "old")] == ["k1_first", "k2_first"]


def test_other_content_under_the_same_name_is_refused_and_changes_nothing(store: Store, tree: Path) -> None:
    put(tree, summary())
    load(store, tree)
    put(tree, summary(accuracy=0.9))
    put(tree, summary(config="another"))
    before = sorted(store.root.rglob("*"))
    with pytest.raises(
        UnmaskError, match=r"'old' already holds other content .*nothing was changed.*another name"
    ):
        load(store, tree)
    assert sorted(store.root.rglob("*")) == before
    assert load(store, tree, "newer").added == 2
    assert imports(store) == ["newer", "old"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "it is empty"),
        ('{"task": "gsm8k", ', "no JSON at character"),
        ("[]", "no JSON object"),
        (summary(accuracy="high"), "its accuracy is 'high', which is no number"),
        (summary(accuracy=80.4), "does not lie between 0 and 1"),
        (summary(accuracy=True), "no number"),
        (json.dumps(summary()).replace("0.75", "NaN"), "it holds NaN"),
        (summary(task=None), "it has no task"),
        (summary(config=""), "it has no config"),
        (summary(eval_params={"limit": "all"}), "its limit is 'all'"),
        (summary(throughput={"tokens_per_s": []}), "its speed"),
    ],
)
def test_bad_files_are_told_in_one_sentence_and_the_rest_is_taken(
    store: Store, tree: Path, content: Any, says: str
) -> None:
    put(tree, summary(config="good"))
    bad = put(tree, content, "gsm8k", "bad")
    found = load(store, tree)
    assert [record.configuration for record in found.records] == ["good"]
    (problem,) = found.problems
    assert says in problem.says
    assert str(bad) in problem.says
    assert problem.says.endswith(".")
    assert not (store.root / "foreign/old/files/gsm8k/bad").exists()


def test_missing_accuracy_and_throughput_are_no_error(store: Store, tree: Path) -> None:
    record = only(store, tree / "null", summary(accuracy=None, throughput=None))
    assert (record.value, record.tokens, record.seconds, record.tokens_per_second) == (None, None, None, None)
    assert "It has no accuracy." in record.notes
    put(tree / "bare", {"task": "gsm8k", "config": "k1"})
    (bare,) = load(store, tree / "bare", "bare").records
    assert bare.notes == ("It has no accuracy.",)


def test_the_value_is_the_named_metric_of_the_task(store: Store, tree: Path) -> None:
    rows = {
        "minerva_math": {"exact_match,none": 0.0, "math_verify,none": 0.4, "math_verify_stderr,none": 0.05},
        "minerva_math_algebra": {"math_verify,none": 0.6},
    }
    record = only(store, tree, summary("minerva_math", accuracy=0.0, group_results=rows))
    assert (record.metric, record.value, record.stderr, record.told) == ("math_verify,none", 0.4, 0.05, 0.0)
    assert any("its math_verify,none is 0.4; the latter counts" in note for note in record.notes)
    assert record.groups == {
        "minerva_math_algebra": {"metric": "math_verify,none", "value": 0.6, "stderr": None}
    }


def test_an_accuracy_that_agrees_needs_no_note(store: Store, tree: Path) -> None:
    rows = {"mmlu": {"acc,none": 0.5, "acc_stderr,none": 0.004}}
    record = only(store, tree, summary("mmlu", accuracy=0.5, group_results=rows))
    assert (record.metric, record.stderr, record.notes) == ("acc,none", 0.004, ())


def test_another_metric_is_called_by_its_name_and_an_unknown_one_is_admitted(
    store: Store, tree: Path
) -> None:
    rows = {"gsm8k": {"exact_match,strict-match": 0.75, "alias": "gsm8k"}}
    other = only(store, tree / "a", summary(group_results=rows))
    assert (other.metric, other.value) == ("exact_match,strict-match", 0.75)
    assert any(
        "is exact_match,strict-match, not exact_match,flexible-extract" in note for note in other.notes
    )
    put(tree / "b", summary(task="no_such_task"))
    (unknown,) = import_tree(tree / "b", store, "b", metric_of).records
    assert (unknown.metric, unknown.value) == (None, 0.75)
    assert "It does not say which metric its accuracy is." in unknown.notes


@pytest.mark.parametrize(
    ("folder", "limit", "expected", "note"),
    [
        ("gsm8k_limit_10", 10.0, 10.0, None),
        ("gsm8k_limit_10", None, 10.0, None),
        ("gsm8k", 10.0, 10.0, None),
        ("gsm8k_limit_10", 5, 5.0, "says a limit of 10 and its content 5"),
        ("mmlu", None, None, "called mmlu and its task gsm8k"),
        ("mmlu_limit_3", None, None, "called mmlu_limit_3 and its task gsm8k"),
    ],
)
def test_limits_come_from_the_content_then_from_the_folder(
    store: Store, tree: Path, folder: str, limit: float | None, expected: float | None, note: str | None
) -> None:
    record = only(store, tree, summary(eval_params={"limit": limit}), task=folder)
    assert record.limit == expected
    doubts = [each for each in record.notes if "folder" in each]
    assert (doubts == []) if note is None else any(note in each for each in doubts)


def test_trees_of_any_depth_are_read(store: Store, tree: Path) -> None:
    put(tree / "v2" / "experiments" / "artifacts", summary(config="deep"))
    put(tree, summary(config="shallow"))
    assert {record.path for record in load(store, tree).records} == {
        "gsm8k/shallow/summary.json",
        "v2/experiments/artifacts/gsm8k/deep/summary.json",
    }


@pytest.mark.parametrize("name", ["", "..", "a/b", ".a"])
def test_names_that_are_no_folder_are_refused(store: Store, tree: Path, name: str) -> None:
    put(tree, summary())
    with pytest.raises(UnmaskError, match="no name for an import"):
        load(store, tree, name)


def test_a_folder_without_summaries_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="is no folder"):
        load(store, tmp_path / "nowhere")
    with pytest.raises(UnmaskError, match=r"holds no summary\.json"):
        load(store, tmp_path)
    with pytest.raises(UnmaskError, match="no import 'x'"):
        foreign_of(store, "x")


def test_damaged_records_are_made_anew_by_importing_again(store: Store, tree: Path) -> None:
    put(tree, summary())
    before = load(store, tree).records
    file = store.root / "foreign/old/records.json"
    file.write_text('{"schema": 1')
    with pytest.raises(UnmaskError, match="delete it and import the same folder again"):
        foreign_of(store, "old")
    file.unlink()
    assert load(store, tree).records == before


@pytest.mark.skipif(not SEED.is_dir(), reason="the older scripts' files are not here")
def test_the_real_files_are_imported_whole(store: Store) -> None:
    found = load(store, SEED, "seed")
    assert not found.problems
    assert len(found.records) == 28
    values = {(one.task, one.limit, one.configuration): one for one in found.records}
    assert round(values["gsm8k", None, "k2_middle"].value or 0, 4) == 0.7362
    assert values["gsm8k", None, "k1_first"].tokens_per_second == 22.75
    assert {one.value for one in found.records if one.task == "mmlu"} == {0.6652898447514599}
    assert values["mmlu", None, "k3_last"].tokens is None
    assert values["mmlu", None, "k3_last"].groups["mmlu_stem"]["value"] == 0.6114811290834127
    assert values["minerva_math", 10.0, "k1_last"].metric == "math_verify,none"
    assert values["ifeval", 5.0, "k1_first"].metric is None
    assert load(store, SEED, "seed").added == 0
