"""A store may be somebody else's: no file of it hangs a reader, leads out of it, or steers a screen or a table."""

import csv
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from store_cases import done, identity

from unmask.cli import app
from unmask.errors import UnmaskError
from unmask.lab import cancel, status
from unmask.launch.processes import start_worker
from unmask.store import Store
from unmask.store.experiments import Member, experiment_names, read_experiment, read_jobs, write_experiment
from unmask.store.export import Labelled, to_csv
from unmask.store.files import exclusive, open_to_append
from unmask.store.foreign import imports
from unmask.store.index import listing, records
from unmask.store.redaction import redacted
from unmask.store.run_folder import WorkerSettings

WORDS = "one \x1b[31mred\x1b[0m, a title \x1b]0;mine\x07, \x9b2J, \x08\u202e and \N{NO-BREAK SPACE}a space\n"
SHOWN = WORDS.translate(dict.fromkeys(map(ord, "\x1b\x07\x9b\x08\u202e"), "\N{REPLACEMENT CHARACTER}"))
OUTSIDE = ("../../outside", "/outside", "..", "a/b", "")


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    signal.alarm(60)
    yield
    signal.alarm(0)


def member(run: str, folder: str) -> Member:
    return Member(configuration="k2", task="gsm8k", limit=None, id=run, folder=folder, kind="accuracy")


def shown(store: Store, *arguments: str) -> str:
    ran = CliRunner().invoke(app, [*arguments, "--store", str(store.root)])
    assert ran.exit_code in (0, 1, 2), ran.output
    return ran.output


def test_a_log_does_not_steer_the_terminal(store: Store) -> None:
    run = store.run(identity())
    run.new_attempt().log.write_text(WORDS)
    assert shown(store, "logs", run.id) == SHOWN


def test_a_reason_and_a_name_do_not_steer_the_terminal(store: Store, tmp_path: Path) -> None:
    run = store.run(identity())
    run.new_attempt().fail(f"[/] [link=x] :smile: {WORDS}")
    write_experiment(store, "mine", tmp_path / "recipe.toml", "", [member(run.id, run.name)], None)
    text = " ".join(shown(store, "status", "mine").split())
    assert "[/] [link=x] :smile: one \N{REPLACEMENT CHARACTER}[31mred" in text
    assert not set(text) & set("\x1b\x07\x9b\x08\u202e")


def test_an_error_does_not_steer_the_terminal(store: Store) -> None:
    assert "\x1b" not in shown(store, "status", "a\x1b[31m")


def test_pipes_in_a_store_are_not_waited_for(store: Store) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    for name in ("progress", "answers.jsonl", "log.txt", "failure.json"):
        (attempt.folder / name).unlink(missing_ok=True)
        os.mkfifo(attempt.folder / name)
    os.mkfifo(run.folder / "worker.json")
    assert attempt.reached() is None
    for read in (lambda: list(attempt.answers()), lambda: run.worker, lambda: run.answers()):
        with pytest.raises(UnmaskError, match="a pipe or a device"):
            read()
    assert "a pipe or a device" in shown(store, "logs", run.id)
    run.set_worker(WorkerSettings())
    assert run.worker == WorkerSettings()


def test_nothing_is_written_through_a_pipe_or_a_link(store: Store, tmp_path: Path) -> None:
    run, outside = store.run(identity()), tmp_path / "outside"
    outside.write_text("")
    (run.folder / "launch.log").symlink_to(outside)
    os.mkfifo(run.folder / "pipe")
    for name in ("launch.log", "pipe"):
        with pytest.raises(OSError):  # noqa: PT011 (what the system says)
            open_to_append(run.folder / name)
    with pytest.raises(OSError):  # noqa: PT011
        start_worker(["true"], run.folder / "launch.log", own_session=True)
    with exclusive(run.folder / "pipe"):
        pass
    assert outside.read_text() == ""


@pytest.mark.parametrize("number", OUTSIDE)
def test_a_result_names_no_attempt_outside_of_its_run(store: Store, number: str) -> None:
    run = done(store)
    file = run.folder / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attempt": number}))
    with pytest.raises(UnmaskError, match="does not have the layout"):
        run.result()


@pytest.mark.parametrize("number", [10**400, -(10**400), 1 << 81], ids=["large", "negative", "just"])
def test_a_number_that_nobody_can_have_counted_is_damage(store: Store, number: int) -> None:
    run = done(store)
    file = run.folder / "result.json"
    fields = json.loads(file.read_text())
    fields["answers"]["tokens"] = number
    file.write_text(json.dumps(fields))
    with pytest.raises(UnmaskError, match="is damaged"):
        run.result()
    assert "is damaged" in listing(store).damaged[run.name]


@pytest.mark.parametrize("size", [1e101, -1e300, 10**400], ids=["large", "negative", "whole"])
def test_a_number_that_nobody_can_square_is_damage(store: Store, size: float) -> None:
    run = done(store)
    attempt = run.new_attempt()
    for fields in ({"correct": size}, {"metrics": {"acc,none": [size]}}):
        lines = [json.dumps({"id": "gsm8k/0", **values}) for values in ({"correct": 1.0}, fields, {})]
        attempt.samples_file.write_text("".join(line + "\n" for line in lines))
        with pytest.raises(UnmaskError, match=r"Line 2 of .* is damaged"):
            list(attempt.samples())
    file = run.folder / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": size}))
    with pytest.raises(UnmaskError, match="is damaged"):
        run.result()


@pytest.mark.parametrize("folder", OUTSIDE)
def test_an_experiment_names_no_run_outside_of_its_store(store: Store, tmp_path: Path, folder: str) -> None:
    run = done(store)
    write_experiment(store, "mine", tmp_path / "recipe.toml", "", [member(run.id, run.name)], None)
    file = store.root / "experiments" / "mine" / "experiment.json"
    file.write_text(file.read_text().replace(run.name, folder))
    with pytest.raises(UnmaskError, match="does not have the layout"):
        read_experiment(store, "mine")
    for ask in (lambda: status("mine", store=store), lambda: cancel("mine", store=store)):
        with pytest.raises(UnmaskError):
            ask()


TERMS: dict[str, Any] = {"control": "a", "candidates": ["b"], "bounds": [0.05], "comparisons": 1, "rows": 4}
BAD_TERMS = [
    *({"control": folder} for folder in OUTSIDE),
    *({"candidates": ["b", folder]} for folder in OUTSIDE),
    {"rows": 0},
    {"rows": -1},
    {"rows": 10**30},
    {"comparisons": -1},
    {"bounds": [-0.1]},
    {"bounds": [1e300]},
    {"seed": -1},
]


@pytest.mark.parametrize("change", BAD_TERMS, ids=str)
def test_terms_name_no_run_outside_and_no_round_that_cannot_be(store: Store, change: dict[str, Any]) -> None:
    run = store.run(identity())
    file = run.folder / "worker.json"
    file.write_text(json.dumps({"until_decided": TERMS}))
    assert run.worker.until_decided is not msgspec.UNSET
    file.write_text(json.dumps({"until_decided": {**TERMS, **change}}))
    with pytest.raises(UnmaskError, match="does not have the layout"):
        _ = run.worker


@pytest.mark.parametrize("field", ["job", "name", "run", "task"])
@pytest.mark.parametrize("word", ["--user=root", "-u", "../../../../etc/passwd", "1\n2", ["x"], ""])
def test_a_job_on_record_is_no_option_and_no_path(store: Store, field: str, word: object) -> None:
    folder = store.root / "experiments" / "mine" / "jobs"
    folder.mkdir(parents=True)
    good = {"job": "12_3", "run": "0123456789abcdef"}
    lines = [{**good, field: word}, {**good, "name": "mine-0a1b2c3d", "task": 3}]
    (folder / "000001-0a1b2c3d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(read_jobs(store, "mine")) == lines[1:]


def test_folders_that_nobody_can_have_made_are_passed_over(store: Store) -> None:
    run = done(store)
    for kind, file in (("runs", "run.json"), ("experiments", "experiment.json"), ("foreign", "records.json")):
        folder = store.root / kind / "a\x1b[31m"
        folder.mkdir(parents=True)
        (folder / file).write_text("{}")
    assert store.names() == [run.name]
    assert experiment_names(store) == imports(store) == []


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1"])
def test_no_cell_of_a_table_is_a_formula(store: Store, tmp_path: Path, text: str) -> None:
    done(store)
    (record,) = records(store)
    file = tmp_path / "table.csv"
    to_csv([Labelled(msgspec.structs.replace(record, host=text, value=-0.5), text, text)], file)
    with file.open(newline="", encoding="utf-8") as lines:
        (row,) = csv.DictReader(lines)
    assert [row[name] for name in ("host", "experiment", "configuration", "value")] == [
        "'" + text.replace("\r", "\n")
    ] * 3 + ["-0.5"]


def test_a_log_that_is_no_text_is_shown(store: Store) -> None:
    run = store.run(identity())
    run.new_attempt().log.write_bytes(b"\xff\x00\n")
    assert shown(store, "logs", run.id) == "\N{REPLACEMENT CHARACTER}" * 2 + "\n"


def test_a_long_word_is_looked_through_once() -> None:
    word = "credential" * 100_000
    assert redacted(word) == word
    assert redacted(f"{word}=abc-123") == f"{word}=(hidden)"
