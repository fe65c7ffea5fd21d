"""`unmask check` on own results and `unmask compare`, through their files alone."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from stores import filled, result_of
from sweeps import clean

from unmask.analysis.samples import compare as compare_entries
from unmask.analysis.stored import own_table
from unmask.cli.check import check
from unmask.cli.compare import compare
from unmask.store import Store
from unmask.store.experiments import read_experiment
from unmask.store.result import AccuracyResult


def call(command: click.Command, *arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path)[0]


def run_of(store: Store, configuration: str) -> str:
    planned = read_experiment(store, "sweep")
    assert planned is not None
    return next(one.id for one in planned.members if one.configuration == configuration)


def test_check_finds_nothing_invalid_in_a_sound_experiment(store: Store) -> None:
    found = call(check, "--store", store.root, "sweep", "--json")
    assert found.exit_code == 0
    document = json.loads(found.output)
    assert document["experiments"] == ["sweep"]
    assert document["imports"] == []
    assert document["results"] == 6
    assert {one["guard"] for one in document["findings"]} <= {
        "too-few-samples",
        "no-threshold-curve",
        "subsets-within-error",
    }


def test_check_exits_with_1_for_what_is_invalid(store: Store) -> None:
    planned = read_experiment(store, "sweep")
    assert planned is not None
    run = store.open(run_of(store, "k1_middle"))
    result = run.result()
    (run.folder / "result.json").unlink()
    assert isinstance(result, AccuracyResult)
    other = msgspec.structs.replace(result.answers, sha256="f" * 64)
    run.publish(msgspec.structs.replace(result, answers=other))
    found = call(check, "--store", store.root)
    assert found.exit_code == 1
    assert "invalid: controls-differ (sweep)" in found.output
    assert "k1_first, k1_middle must be equal" in found.output.replace("\n  ", " ")


def test_compare_shows_the_table_and_flipped_samples(store: Store) -> None:
    one, other = run_of(store, "k1_first"), run_of(store, "k3_first")
    found = call(compare, one[:8], other, "--store", store.root, "--flips", 2)
    assert found.exit_code == 0
    assert "on 300 rows; 95 % interval" in found.output
    assert "(Tango, exact); p = " in found.output
    assert found.output.count("  first :") == 2
    assert "more flipped samples" in found.output
    document = json.loads(call(compare, one, other, "--store", store.root, "--json").output)
    counts = document["difference"]["counts"]
    assert sum(counts.values()) == 300
    assert len(document["flips"]) == counts["lost"] + counts["gained"]
    assert document["changed_answers"] >= len(document["flips"])
    for flip in document["flips"]:
        assert (flip["second"] == "right") == flip["gained"]
        assert (flip["first"] == "right") != flip["gained"]


def test_compare_says_how_programs_of_the_model_ran(store: Store) -> None:
    for configuration, sandbox in (("k1_first", "bubblewrap"), ("k3_first", "unsafe")):
        run = store.open(run_of(store, configuration))
        result = run.result()
        assert isinstance(result, AccuracyResult)
        (run.folder / "result.json").unlink()
        run.publish(msgspec.structs.replace(result, sandbox=sandbox))
    names = run_of(store, "k1_first"), run_of(store, "k3_first")
    first, second, *_ = call(compare, *names, "--store", store.root).output.splitlines()
    assert first.endswith("(programs of the model ran: bubblewrap)")
    assert second.endswith("(programs of the model ran: unsafe)")
    document = json.loads(call(compare, *names, "--store", store.root, "--json").output)
    assert (document["first"]["sandbox"], document["second"]["sandbox"]) == ("bubblewrap", "unsafe")
    plain = call(compare, run_of(store, "k2_first"), names[0], "--store", store.root, "--json")
    assert "sandbox" not in json.loads(plain.output)["first"]


def test_a_run_compared_with_itself_does_not_differ(store: Store) -> None:
    entry = own_table(store).entries[0]
    found = compare_entries(entry, entry)
    assert (found.changed, found.flips, found.difference.value) == (0, (), 0.0)


def test_compare_gives_no_interval_to_what_must_be_equal(store: Store) -> None:
    one, other = run_of(store, "k1_first"), run_of(store, "k1_middle")
    found = call(compare, one, other, "--store", store.root)
    assert "The two must give the same answers, so there is no interval." in found.output
    assert "interval +" not in found.output
    document = json.loads(call(compare, one, other, "--store", store.root, "--json").output)
    assert document["equal_by_construction"] is True
    assert (document["difference"]["interval"], document["difference"]["p_value"]) == (None, None)


def test_compare_writes_one_kind_of_minus(store: Store) -> None:
    found = call(
        compare, run_of(store, "k1_first"), run_of(store, "k3_first"), "--store", store.root, "--flips", 0
    )
    figures = found.output.split("Difference ")[1].split("; p =")[0]
    assert "\N{MINUS SIGN}" in figures
    assert "-" not in figures


def test_compare_keeps_control_characters_from_the_terminal(store: Store) -> None:
    entry = own_table(store).entries[4]
    assert entry.samples is not None
    text = entry.samples.read_text(encoding="utf-8").replace("wrong k3_first", "\\u001b[2Jgone")
    entry.samples.write_text(text, encoding="utf-8")
    found = call(
        compare, run_of(store, "k1_first"), run_of(store, "k3_first"), "--store", store.root, "--flips", 99
    )
    assert "gone" in found.output
    assert "\x1b" not in found.output


def test_compare_refuses_what_cannot_be_compared(store: Store) -> None:
    one = run_of(store, "k1_first")
    for other, sentence in (
        (run_of(store, "timing"), "is a timing run"),
        (run_of(store, "k2_middle"), "has no result yet"),
        ("nothing", "no run 'nothing'"),
    ):
        found = call(compare, one, other, "--store", store.root)
        assert found.exit_code == 1
        assert sentence in str(found.exception)
    entry = clean().entries[0]
    elsewhere = store.run({"schema": 1, "kind": "accuracy", "task": {"name": "other"}})
    elsewhere.publish(msgspec.structs.replace(result_of(elsewhere, entry, "0001"), task="other"))
    found = call(compare, one, elsewhere.id, "--store", store.root)
    assert "compare two runs of the same rows" in str(found.exception)


def test_compare_warns_of_a_retracted_run(store: Store) -> None:
    one = run_of(store, "k1_first")
    store.open(one).retract("wrong data")
    found = call(compare, one, run_of(store, "k2_last"), "--store", store.root)
    assert found.exit_code == 0
    assert "was retracted: wrong data" in found.output + found.stderr
