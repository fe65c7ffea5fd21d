"""`export` and `import`: results for other programs, and those of older ones, which stay apart."""

import json
from pathlib import Path

import pytest
from cli_cases import Run, error_line
from planted import ACCURACY_RUNS, read_csv

from unmask.store import Store

# export and import


def test_export_to_csv_and_parquet(run: Run, done: Path, tmp_path: Path) -> None:
    told = run("export", "planted", "--output", tmp_path / "all.csv")
    assert told.stdout == f"10 rows written to {tmp_path / 'all.csv'}.\n"
    rows = {row["configuration"]: row for row in read_csv(tmp_path / "all.csv", "accuracy")}
    assert set(rows) == set(ACCURACY_RUNS)
    assert (rows["k2_last"]["value"], rows["k2_last"]["limit"], rows["k2_last"]["experiment"]) == (
        "0.75",
        "4",
        "planted",
    )
    assert rows["k2_last"]["speedup"] == ""
    speeds = {row["configuration"]: row["speedup"] for row in read_csv(tmp_path / "all.csv", "timing")}
    assert (speeds["k1_first"], speeds["k2_last"]) == ("1.0", "1.25")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    run("export", "--output", tmp_path / "all.parquet")
    table = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert len(table) == 10
    assert {row["value"] for row in table if row["kind"] == "accuracy"} == {0.75}


def test_export_to_the_tree_of_older_scripts_and_back(run: Run, done: Path, tmp_path: Path) -> None:
    run("export", "planted", "--output", tmp_path / "artifacts")
    file = tmp_path / "artifacts" / "unmask_arith_limit_4" / "k2_last" / "summary.json"
    summary = json.loads(file.read_text())
    assert (summary["task"], summary["config"], summary["accuracy"]) == ("unmask_arith", "k2_last", 0.75)
    again = run("export", "planted", "--output", tmp_path / "artifacts")
    assert again.exit_code == 0
    result = run("import", tmp_path / "artifacts", "--name", "own_tree")
    assert result.stdout == "5 summaries imported as own_tree, 5 in all.\n"


def test_export_replaces_no_other_content(run: Run, done: Path, tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("precious")
    assert "is there already with other content" in error_line(
        run("export", "--output", tmp_path / "all.csv")
    )
    assert (tmp_path / "all.csv").read_text() == "precious"


def old_summary(task: str, config: str, accuracy: float) -> dict[str, object]:
    """As older scripts wrote them."""
    return {
        "task": task,
        "config": config,
        "timestamp": "20260119_120000",
        "accuracy": accuracy,
        "throughput": {"tokens_generated": 100, "total_time_s": 2.0, "tokens_per_s": 50.0},
        "git": {"commit": "abc", "dirty": True},
        "eval_params": {"limit": None, "num_fewshot": 0},
    }


@pytest.fixture
def old_tree(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    for config, accuracy in (("k1_first", 0.8044), ("k2_first", 0.7369)):
        place = folder / "gsm8k" / config
        place.mkdir(parents=True)
        (place / "summary.json").write_text(json.dumps(old_summary("gsm8k", config, accuracy)))
    return folder


def test_imported_summaries_stay_apart(
    run: Run, done: Path, old_tree: Path, store: Store, tmp_path: Path
) -> None:
    result = run("import", old_tree, "--name", "seed")
    assert (result.exit_code, result.stdout) == (0, "2 summaries imported as seed, 2 in all.\n")
    assert run("import", old_tree, "--name", "seed").stdout == "0 summaries imported as seed, 2 in all.\n"
    assert json.loads(run("status", "--json").stdout)[0]["experiment"] == "planted"
    run("export", "--output", tmp_path / "all.csv")
    assert "gsm8k" not in (tmp_path / "all.csv").read_text()
    checked = json.loads(run("check", "--foreign", "seed", "--json").stdout)
    assert (checked["imports"], checked["results"]) == (["seed"], 2)


def test_a_summary_that_cannot_be_read_is_named_and_the_rest_is_taken(
    run: Run, old_tree: Path, store: Store
) -> None:
    broken = old_tree / "gsm8k" / "k3_first" / "summary.json"
    broken.parent.mkdir()
    broken.write_text('{"task": ')
    result = run("import", old_tree)
    assert result.exit_code == 1
    assert result.stdout == "2 summaries imported as artifacts, 2 in all.\n"
    assert "k3_first" in result.stderr
    assert result.stderr.endswith("\n1 file could not be read.\n")


def test_the_store_is_found_by_option_too(run: Run, done: Path, store: Store, tmp_path: Path) -> None:
    assert "There is no experiment in" in run("status", "--store", tmp_path / "nowhere").stdout
    assert "planted" in run("status", "--store", store.root).stdout
