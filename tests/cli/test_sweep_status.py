"""The verbs that look after runs: `status`, `logs`, `retract`, `rm` and `cancel`, on planted results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import Run, error_line, lines_with
from planted import (
    ACCURACY_RUNS,
    ALL_RUNS,
    TEXT,
    folder_of,
    plant,
    plant_stopped,
    read_csv,
    runs_of,
    use_planted_worker,
    write_recipe,
)

from unmask.spec import sweep
from unmask.store import Store
from unmask.store.run_folder import WorkerSettings
from unmask.store.state import state_of

HEAVY = ("torch", "transformers", "lm_eval", "datasets", "scipy")

EARLIER = "an earlier result that is kept and enters no table, because it differs in:"

# status


def test_status_of_every_kind_of_run(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe)
    run("run", recipe)
    folders = {name: folder_of(store, recipe, name) for name in ALL_RUNS}
    folders["k1_last"].retract("The node was shared.")
    for name in ("k2_first", "k2_last", "t0.7", "timing"):
        folders[name].set_aside()
    folders["k2_first"].new_attempt().fail("The disk is full.")
    plant_stopped(folders["k2_last"])
    busy = folders["t0.7"].new_attempt()
    busy.progress(3, 4)
    told = json.loads(run("status", "--json").stdout)
    assert [one["experiment"] for one in told] == ["planted"]
    found = {one["configuration"]: (one["status"], one["reason"]) for one in told[0]["runs"]}
    assert found["k1_first"] == ("done", None)
    assert found["k1_last"] == ("retracted", "The node was shared.")
    assert found["k2_first"] == ("failed", "The disk is full.")
    assert found["k2_last"][0] == "interrupted"
    assert found["t0.7"] == ("running", None)
    assert found["timing"] == ("missing", None)
    table = run("status")
    assert lines_with(table, folders["k2_first"].id, "failed", "The disk is full.")
    assert lines_with(table, folders["t0.7"].id, "running", "3/4")
    assert lines_with(table, folders["k1_last"].id, "retracted", "The node was shared.")


def test_status_of_several_experiments_is_a_line_each(
    run: Run, done: Path, tmp_path: Path, store: Store
) -> None:
    other = write_recipe(
        tmp_path / "other", TEXT.replace('"planted"', '"other"').replace("limit = 4", "limit = 5")
    )
    plant(store, other, "k1_first", "k1_last", "k2_first", "k2_last", "t0.7")
    run("run", other)
    table = run("status").stdout
    assert [line.split()[:2] for line in table.splitlines() if "other" in line or "planted" in line] == [
        ["other", "6"],
        ["planted", "6"],
    ]
    assert "k1_first" in run("status", "other").stdout


def test_status_and_run_name_what_differs_from_an_earlier_result(
    run: Run, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(run("status", "--json").stdout)[0]["changed"] == []
    write_recipe(done, TEXT.replace("threshold = 0.7", "threshold = 0.8"))
    change = f"1 run has {EARLIER} decode.threshold 0.7 -> 0.8."
    timing = change.replace("decode.", "configurations.t0.7.decode.")
    for command in (("plan", done, "--run-equal"), ("run", done, "--dry-run", "--run-equal")):
        said = " ".join(run(*command).stdout.split())
        assert change in said, command
        assert timing in said, command
    monkeypatch.setattr(sys, "executable", use_planted_worker(tmp_path))
    monkeypatch.setenv("PLANTED_FAIL", "t0.7,timing")
    assert change in " ".join(run("run", done, "--run-equal").stdout.split())
    assert change in " ".join(run("status").stdout.split())
    assert sorted(json.loads(run("status", "--json").stdout)[0]["changed"]) == sorted([change, timing])


def test_status_says_that_results_are_of_another_revision(
    run: Run, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sweep.ENGINE_REVISION
    monkeypatch.setattr(sweep, "ENGINE_REVISION", before + 1)
    (found,) = json.loads(run("status", "--json").stdout)
    assert {each["status"] for each in found["runs"]} == {"done"}
    assert found["changed"] == [
        f"6 results are of another version of Unmask (engine revision {before} -> {before + 1}); `unmask run` computes "
        "them again and keeps these."
    ]
    said = " ".join(run("run", done, "--dry-run", "--run-equal").stdout.split())
    assert f"6 runs have {EARLIER} engine revision {before} -> {before + 1}." in said
    assert "6 of 6 runs would be executed" in said


def test_status_of_an_empty_store(run: Run, store: Store) -> None:
    result = run("status")
    assert result.exit_code == 0
    assert "There is no experiment in" in result.stdout
    assert json.loads(run("status", "--json").stdout) == []


def test_watching_ends_with_an_interrupt(run: Run, done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(looks, "enough") == "enough":
            raise KeyboardInterrupt

    monkeypatch.setattr("unmask.cli.status.time.sleep", sleep)
    result = run("status", "--watch")
    assert result.exit_code == 130
    assert "k2_last" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "planted", "--json"],
        ["plan", "RECIPE"],
        ["run", "RECIPE", "--dry-run"],
        ["logs", "k"],
        ["export", "--output", "out.csv"],
        ["cancel", "planted"],
    ],
    ids=" ".join,
)
def test_verbs_of_a_login_node_import_nothing_heavy(done: Path, tmp_path: Path, arguments: list[str]) -> None:
    program = (
        "import sys, click\n"
        "from unmask.cli import app\n"
        "try:\n"
        "    app(sys.argv[1:], standalone_mode=False)\n"
        "except (click.ClickException, click.exceptions.Exit):\n"
        "    pass\n"
        f"print('HEAVY', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    given = [str(done) if argument == "RECIPE" else argument for argument in arguments]
    command = [sys.executable, "-c", program, *given]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "HEAVY"


# logs


def test_logs_are_those_of_the_newest_attempt_unless_another_is_named(
    run: Run, recipe: Path, store: Store
) -> None:
    folder = store.run(runs_of(recipe)["k1_first"].identity)
    assert f"{folder.name} has no log yet" in error_line(run("logs", folder.id))
    plant_stopped(folder, "the first\n")
    plant_stopped(folder, "the second\n")
    assert run("logs", folder.id).stdout == "the second\n"
    assert run("logs", folder.id[:6], "--attempt", 1).stdout == "the first\n"
    path = run("logs", folder.name, "--path").stdout.strip()
    assert Path(path) == folder.attempts()[-1].log
    assert "has 2 attempts, but no number 3" in error_line(run("logs", folder.id, "--attempt", 3))


# retract and rm


def test_a_retracted_result_enters_no_table(run: Run, done: Path, store: Store, tmp_path: Path) -> None:
    folder = folder_of(store, done, "k2_last")
    result = run("retract", folder.id, "--reason", "The node was shared.")
    assert result.stdout == f"{folder.name} is retracted.\n"
    table = run("run", done)
    assert "Nothing to do: 5 done, 1 retracted." in table.stdout
    (line,) = lines_with(table, "k2_last")
    assert "%" not in line
    assert "retracted" in line
    checked = json.loads(run("check", "planted", "--json").stdout)
    assert checked["results"] == 5
    run("export", "--output", tmp_path / "tree")
    written = {file.parent.name for file in (tmp_path / "tree").rglob("summary.json")}
    assert written == set(ACCURACY_RUNS) - {"k2_last"}
    run("export", "--output", tmp_path / "all.csv")
    marks = {row["configuration"]: row["retracted"] for row in read_csv(tmp_path / "all.csv", "accuracy")}
    assert {name for name, mark in marks.items() if mark} == {"k2_last"}
    assert folder.result() is not None


def test_a_retraction_can_be_taken_back(run: Run, done: Path, store: Store) -> None:
    folder = folder_of(store, done, "k2_last")
    before = run("run", done).stdout
    assert "is not retracted" in error_line(run("retract", folder.id, "--undo"))
    run("retract", folder.id, "--reason", "The node was shared.")
    both = run("retract", folder.id, "--undo", "--reason", "again")
    assert "--undo takes no --reason" in error_line(both)
    result = run("retract", folder.id, "--undo")
    assert result.stdout == f"{folder.name} counts again.\n"
    assert folder.retraction() is None
    assert run("run", done).stdout == before
    run("retract", folder.id, "--reason", "The clock was wrong.")
    run("retract", folder.id, "--undo")
    kept = [json.loads(file.read_bytes()) for file in sorted(folder.folder.glob("previous/*/retracted.json"))]
    assert [one["reason"] for one in kept] == ["The node was shared.", "The clock was wrong."]


def test_a_retracted_timing_run_gives_no_speed(run: Run, done: Path, store: Store) -> None:
    assert "Speed-up vs" in run("run", done).stdout
    run("retract", folder_of(store, done, "timing").id, "--reason", "Another job ran.")
    assert "Speed-up" not in run("run", done).stdout


def test_a_result_is_retracted_once_and_with_a_reason(run: Run, done: Path, store: Store) -> None:
    run_id = folder_of(store, done, "k1_first").id
    assert "needs a reason" in error_line(run("retract", run_id, "--reason", "  "))
    assert "Missing option '--reason'" in error_line(run("retract", run_id))
    run("retract", run_id, "--reason", "The node was shared.")
    assert "was retracted before" in error_line(run("retract", run_id, "--reason", "again"))


def test_rm_asks_first(run: Run, done: Path, store: Store) -> None:
    folder = folder_of(store, done, "k1_first")
    refused = run("rm", folder.id, stdin="n\n")
    assert refused.exit_code == 1
    assert folder.result() is not None
    assert run("rm", folder.id, stdin="y\n").exit_code == 0
    assert not folder.folder.exists()


def test_what_was_deleted_is_to_do_again(run: Run, done: Path, store: Store) -> None:
    ids = [folder_of(store, done, name).id for name in ("k1_first", "timing")]
    result = run("rm", *ids, "--yes")
    assert result.stdout == "2 runs deleted.\n"
    assert "2 of 6 runs would be executed." in run("run", done, "--dry-run").stdout
    assert lines_with(run("status"), ids[0], "missing")


def test_rm_does_not_touch_a_run_under_way(run: Run, recipe: Path, store: Store) -> None:
    busy = store.run(runs_of(recipe)["k1_first"].identity)
    busy.new_attempt()
    other = plant(store, recipe, "k1_last")[0]
    line = error_line(run("rm", other.id, busy.id, "--yes"))
    assert f"is running; stop it with `unmask cancel {busy.id}` first" in line
    assert busy.folder.exists()
    assert other.folder.exists()


# cancel


def test_cancel_stops_a_worker_of_this_machine(run: Run, recipe: Path, store: Store, tmp_path: Path) -> None:
    busy = store.run(runs_of(recipe)["k1_first"].identity, WorkerSettings(configuration="k1_first"))
    command = [use_planted_worker(tmp_path), "-m", "unmask", "run-one", str(busy.folder)]
    worker = subprocess.Popen(command, env={"PLANTED_WAIT": "k1_first"}, stderr=subprocess.DEVNULL)
    with worker:
        while state_of(busy).status != "running":
            assert worker.poll() is None
        result = run("cancel", busy.id)
        assert result.stdout == "0 jobs cancelled, 1 worker on this machine stopped.\n"
        assert worker.wait(timeout=30) != 0
    assert state_of(busy).status == "interrupted"
    assert run("cancel", busy.id).stdout == "0 jobs cancelled, 0 workers on this machine stopped.\n"


def test_cancel_of_an_experiment_that_is_done_stops_nothing(run: Run, done: Path) -> None:
    assert run("cancel", "planted").stdout == "0 jobs cancelled, 0 workers on this machine stopped.\n"
