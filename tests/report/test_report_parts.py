"""Flips, heat maps and the summary across experiments."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from invented_store import outcome, write_attempt, write_store

from unmask.analysis.samples import accuracy_interval
from unmask.analysis.words import MISSING
from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.report.heat_maps import heat_maps
from unmask.report.markdown import as_markdown
from unmask.report.page import as_page
from unmask.report.samples import LONGEST_ANSWER, flips_of, shortened
from unmask.report.tables import across
from unmask.store.computation import Computation
from unmask.store.foreign import import_tree
from unmask.store.result import AccuracyResult


def test_flips_are_the_rows_whose_outcome_changed(document: Document) -> None:
    flips = {one["task"]: one for one in flips_of(document.parts[0].tasks)}
    arith = flips["arith"]
    assert arith["control"] == "k1_first"
    names = [one["names"] for one in arith["configurations"]]
    assert ["k2_first"] in names
    assert not any("k1_middle" in some for some in names), "the same answers as the control"
    (found,) = [one for one in arith["configurations"] if one["names"] == ["k3_first"]]
    expected = {
        f"arith/{index}": outcome("k3_first", "arith", index)
        for index in range(400)
        if outcome("k3_first", "arith", index) != outcome("k1_first", "arith", index)
    }
    assert {arith["samples"][place][0]: bool(gained) for place, gained, _ in found["flips"]} == expected
    assert found["total"] == len(expected)


def test_a_budget_leaves_texts_out_and_says_how_many(document: Document) -> None:
    for task in flips_of(document.parts[0].tasks, budget=20_000):
        for one in task["configurations"]:
            assert one["total"] == len(one["flips"]) + one["left_out"]
    assert any(one["left_out"] for one in task["configurations"])


def test_long_texts_keep_their_beginning_and_end() -> None:
    text = "begin" + "x" * 5000 + "end"
    short = shortened(text, LONGEST_ANSWER)
    assert short.startswith("begin")
    assert short.endswith("end")
    assert len(short) < LONGEST_ANSWER + 60
    assert shortened("brief", 10) == "brief"


def test_a_grid_is_k_by_subset(document: Document) -> None:
    maps = heat_maps(document.parts[0].tasks[0])
    assert [one.title.split(" (")[0] for one in maps] == ["Accuracy", "Speed-up", "Work skipped"]
    accuracy = maps[0]
    assert (accuracy.columns_name, accuracy.rows_name) == ("k", "layers")
    assert accuracy.columns == ("1", "2", "3")
    assert [name for name, _ in accuracy.rows] == ["first", "middle", "last"]
    cells = [cell for _, row in accuracy.rows for cell in row]
    assert [cell.name for cell in cells if cell][:3] == ["k1_first", "k2_first", "k3_first"]
    assert {cell.share for cell in cells if cell} >= {0.0, 1.0}


def test_the_summary_names_the_best_within_the_budget(document: Document) -> None:
    arith, exam = across(document)
    assert (arith.control, arith.answer) == ("k1_first", document.parts[0].verdict.answer)  # type: ignore[union-attr]
    assert (exam.answer, exam.best, exam.gain) == (None, MISSING, MISSING), "no interval ends below 5 points"
    lines = {line.name: line for line in document.parts[0].tasks[0].lines}
    assert lines[arith.best].loss.interval.high <= 0.05  # type: ignore[union-attr]
    assert float(arith.gain) > 1.1


def test_an_accuracy_has_an_interval_from_rows_or_error(document: Document) -> None:
    entry = document.parts[0].tasks[0].lines[0].entry
    by_rows = accuracy_interval(entry)
    by_error = accuracy_interval(replace(entry, rows=None))
    assert by_rows is not None
    assert by_rows.method == "Wilson"
    assert by_error is not None
    assert by_error.high - by_error.low == pytest.approx(2 * 1.96 * 0.02, rel=1e-3)
    assert accuracy_interval(replace(entry, rows=None, stderr=None)) is None


def test_configurations_that_answered_alike_share_their_flips(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=80, configurations=["k1_first", "k1_last", "k3_first"])
    (arith, _) = flips_of(gather(store, ["05_invented"]).parts[0].tasks)
    assert [one["names"] for one in arith["configurations"]] == [["k3_first"]]


def test_an_experiment_without_any_result_is_still_reported(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k1_first", "k2_first"])
    for file in store.runs_folder.rglob("result.json"):
        file.unlink()
    document = gather(store, ["05_invented"])
    text = as_markdown(document)
    assert "**Status**: partial (0 accuracy runs, 0 timing runs, 19 planned without a result)" in text
    assert "There is no result yet." in text
    assert "19 planned runs without a result" in as_page(document)


def test_one_configuration_alone_is_still_reported(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k2_first"])
    document = gather(store, ["05_invented"])
    assert document.parts[0].tasks[0].control is None
    assert "Drop" not in as_markdown(document).split("## Unexpected", 1)[0]
    assert "k2_first" in as_page(document)
    assert list(flips_of(document.parts[0].tasks)) == []


def test_an_import_may_bear_the_name_of_an_experiment(tmp_path: Path) -> None:
    store = write_store(tmp_path / "results", rows=60, configurations=["k1_first", "k2_first"])
    file = tmp_path / "theirs" / "gsm8k" / "k1_first" / "summary.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"task": "gsm8k", "config": "k1_first", "accuracy": 0.5}')
    import_tree(tmp_path / "theirs", store, "05_invented", lambda task: task)
    document = gather(store, ["05_invented"], ["05_invented"])
    keys = [task.key for part in document.parts for task in part.tasks]
    assert len(keys) == len(set(keys)) == 3
    assert "imported" in as_page(document)


def test_nothing_takes_the_place_of_a_control_without_a_result(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k1_last", "k2_first"])
    document = gather(store, ["05_invented"])
    assert document.parts[0].tasks[0].control is None
    text = as_markdown(document)
    assert "Control: k1_first (no result yet)." in text
    assert "(control)" not in text
    assert "has no result yet" in as_page(document)


def test_answers_that_were_computed_again_are_shown_with_the_reason(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k1_first", "k2_first"])
    run = next(run for run in map(store.open, store.names()) if isinstance(run.result(), AccuracyResult))
    file = run.folder / "result.json"
    fields = json.loads(file.read_bytes())
    fields["answers"] |= {"resumed": 0, "computed_again": 41}
    write_attempt(run, "node1", 1_900_000_000.0)
    (first, second) = run.attempts()
    fields["attempt"] = second.number
    file.write_text(json.dumps(fields))
    kind = Computation(torch="2.12.0", device="cuda", dtype="float16")
    first.compute_as(kind)
    second.compute_as(msgspec.structs.replace(kind, dtype="bfloat16"))
    page = as_page(gather(store, ["05_invented"]))
    assert "<small>41 computed again</small>" in page
    assert "not taken over: dtype float16 -&gt; bfloat16" in page
