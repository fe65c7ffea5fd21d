"""Exports hold what the records hold, overwrite nothing, and come back through an import."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import done, identity, result, timing_identity, timing_result

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import metric_of
from unmask.store import Store
from unmask.store.export import COLUMNS, Labelled, rows_of, to_csv, to_parquet, to_tree
from unmask.store.foreign import import_tree
from unmask.store.index import records


@pytest.fixture
def labelled(store: Store) -> list[Labelled]:
    done(store, k=2, value=0.1 + 0.2)
    done(store, k=3, value=0.5, limit=10)
    run = store.run(timing_identity())
    run.publish(timing_result(run))
    return [Labelled(record, "mine", f"k{record.policy.get('k', 'timing')}") for record in records(store)]


def test_rows_hold_accuracy_and_speed_apart(labelled: list[Labelled]) -> None:
    rows = rows_of(labelled)
    assert [list(row) for row in rows] == [list(COLUMNS)] * 4
    by_kind = {(row["kind"], row["configuration"]): row for row in rows}
    accuracy, timing = by_kind["accuracy", "k2"], by_kind["timing", "k2"]
    assert (accuracy["value"], accuracy["tokens_per_second"], accuracy["speedup"]) == (0.1 + 0.2, None, None)
    assert (timing["value"], timing["tokens_per_second"], timing["speedup_low"]) == (None, 50.0, 1.0)
    assert (accuracy["reuse_generation"], accuracy["answers_sha256"], accuracy["gpu"]) == (
        0.25,
        "a" * 64,
        "a GPU",
    )
    assert json.loads(accuracy["policy"])["k"] == 2
    assert by_kind["accuracy", "k3"]["limit"] == 10
    assert {row["sandbox"] for row in rows} == {None}


@pytest.mark.parametrize("sandbox", ["bubblewrap", "unsafe"])
def test_a_row_says_how_programs_ran(store: Store, tmp_path: Path, sandbox: str) -> None:
    run = store.run(identity("humaneval"))
    run.publish(result(run, sandbox=sandbox))
    labelled = [Labelled(record, "mine", "k2") for record in records(store)]
    to_csv(labelled, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as stream:
        assert [row["sandbox"] for row in csv.DictReader(stream)] == [sandbox]
    parquet = pytest.importorskip("pyarrow.parquet")
    to_parquet(labelled, tmp_path / "table.parquet")
    assert parquet.read_table(tmp_path / "table.parquet").column("sandbox").to_pylist() == [sandbox]


def test_tables_of_a_store_that_came_with_a_secret_hold_none(
    labelled: list[Labelled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("HF_TOKEN", "a plain word as token")
    foreign = [replace(each, experiment="by a plain word as token") for each in labelled]
    to_csv(foreign, tmp_path / "table.csv")
    to_parquet(foreign, tmp_path / "table.parquet")
    assert "plain word" not in (tmp_path / "table.csv").read_text()
    names = parquet.read_table(tmp_path / "table.parquet").column("experiment").to_pylist()
    assert set(names) == {"by (hidden)"}


def test_csv_holds_every_digit(labelled: list[Labelled], tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    assert to_csv(labelled, file) == 4
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == list(COLUMNS)
    assert sorted(float(row["value"]) for row in rows if row["value"]) == [0.1 + 0.2, 0.5]


def test_parquet_holds_types(labelled: list[Labelled], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "table.parquet"
    assert to_parquet(labelled, file) == 4
    assert parquet.read_table(file).to_pylist() == rows_of(labelled)
    to_parquet([], tmp_path / "empty.parquet")
    assert parquet.read_table(tmp_path / "empty.parquet").column_names == list(COLUMNS)


def test_without_pyarrow_parquet_says_what_to_do(
    labelled: list[Labelled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnmaskError, match="pip install pyarrow, or export to CSV"):
        to_parquet(labelled, tmp_path / "table.parquet")
    assert not list(tmp_path.glob("*.parquet"))


def test_what_is_there_is_not_overwritten(labelled: list[Labelled], tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    to_csv(labelled, file)
    before = file.stat().st_mtime_ns
    to_csv(labelled, file)
    assert file.stat().st_mtime_ns == before
    with pytest.raises(UnmaskError, match="is there already with other content"):
        to_csv(labelled[:1], file)
    with pytest.raises(UnmaskError, match="cannot be read"):
        to_csv(labelled, tmp_path)
    assert file.stat().st_mtime_ns == before


def test_the_tree_of_the_older_scripts_comes_back_through_an_import(
    store: Store, labelled: list[Labelled], tmp_path: Path
) -> None:
    written = to_tree(store, labelled, tmp_path / "artifacts")
    assert sorted(str(path.relative_to(tmp_path / "artifacts")) for path in written) == [
        "gsm8k/k2/summary.json",
        "gsm8k_limit_10/k3/summary.json",
    ]
    back = import_tree(tmp_path / "artifacts", Store.at(tmp_path / "other"), "back", metric_of)
    assert not back.problems
    accuracies = [one.record for one in labelled if one.record.kind == "accuracy"]
    told = {(one.task, one.limit): one for one in back.records}
    for record in accuracies:
        found = told[record.task, record.limit]
        assert (found.value, found.stderr, found.metric) == (record.value, record.stderr, record.metric)
        assert (found.commit, found.dirty, found.host, found.gpu) == (
            record.commit,
            record.dirty,
            record.host,
            record.gpu,
        )
        assert found.tokens == record.answers.tokens
        assert found.notes == ()


def test_a_tree_is_written_as_a_whole_or_not_at_all(
    store: Store, labelled: list[Labelled], tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts"
    blocked = folder / "gsm8k_limit_10" / "k3" / "summary.json"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("mine")
    with pytest.raises(UnmaskError, match="is there already with other content"):
        to_tree(store, labelled, folder)
    assert blocked.read_text() == "mine"
    assert not (folder / "gsm8k").exists()
    blocked.unlink()
    assert to_tree(store, labelled, folder) == to_tree(store, labelled, folder)


def test_two_results_for_one_place_are_refused(store: Store, tmp_path: Path) -> None:
    done(store, k=2)
    done(store, k=3)
    same = [Labelled(record, "mine", "same") for record in records(store)]
    with pytest.raises(UnmaskError, match="export one experiment at a time"):
        to_tree(store, same, tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("name", ["../outside", "..", "", "a/b"])
def test_no_name_leaves_the_folder(store: Store, tmp_path: Path, name: str) -> None:
    done(store)
    with pytest.raises(UnmaskError, match="cannot be the name of a folder"):
        to_tree(store, [Labelled(records(store)[0], None, name)], tmp_path / "artifacts")


def test_a_removed_run_is_told(store: Store, labelled: list[Labelled], tmp_path: Path) -> None:
    store.open(labelled[0].record.id).remove()
    with pytest.raises(UnmaskError, match="has no result any more"):
        to_tree(store, labelled, tmp_path / "artifacts")
