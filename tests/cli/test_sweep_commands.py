"""The verbs about sweeps on planted results: what they show, what they change, and what they leave alone."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import Run, error_line
from click.testing import Result
from planted import (
    ACCURACY_RUNS,
    ALL_RUNS,
    TEXT,
    folder_of,
    plant,
    plant_stopped,
    runs_of,
    use_planted_worker,
    write_recipe,
)

from unmask.spec.recipe import read_recipe
from unmask.store import Store
from unmask.store.experiments import read_experiment
from unmask.store.state import state_of

HEAVY = ("torch", "transformers", "lm_eval", "datasets", "scipy")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "recipes" / "planted")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, which the verbs find by the environment."""
    monkeypatch.setenv("UNMASK_STORE", str(tmp_path / "results"))
    return Store(tmp_path / "results")


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that plant results instead of computing them."""
    monkeypatch.setattr(sys, "executable", use_planted_worker(tmp_path))


@pytest.fixture
def done(run: Run, recipe: Path, store: Store) -> Path:
    """The recipe with all of its results, known to the store."""
    plant(store, recipe)
    assert run("run", recipe).exit_code == 0
    return recipe


def lines_with(result: Result, *parts: str) -> list[str]:
    return [line for line in result.stdout.splitlines() if all(part in line for part in parts)]


# new


def test_new_makes_a_recipe_that_can_be_planned(run: Run, tmp_path: Path) -> None:
    result = run("new", "05_mine", "--folder", tmp_path)
    assert result.exit_code == 0
    assert sorted(file.name for file in (tmp_path / "05_mine").iterdir()) == [
        "log.md",
        "proposal.md",
        "recipe.toml",
    ]
    assert read_recipe(tmp_path / "05_mine").name == "05_mine"
    for file in (tmp_path / "05_mine").iterdir():
        assert "@" not in file.read_text()


def test_new_leaves_what_is_there_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.toml").write_text("precious")
    assert "is there already; choose another name" in error_line(run("new", "mine", "--folder", tmp_path))
    assert (tmp_path / "mine" / "recipe.toml").read_text() == "precious"


# plan


def test_plan_shows_runs_ceilings_controls_and_samples(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first")
    result = run("plan", recipe)
    assert result.exit_code == 0
    assert lines_with(result, "k1_first", "never acts", "done")
    assert lines_with(result, "k2_last", "x", "missing")
    assert lines_with(result, "timing: 5 configurations, 2 prompts, 3 rounds", "missing")
    assert "6 runs: 1 done, 5 missing." in result.stdout
    assert "To do: 5 runs" in result.stdout
    assert "Equal by construction (controls): k1_first, k1_last." in result.stdout
    assert "Equal by construction (controls): k2_first, k2_last." in result.stdout
    assert "rows are needed" in result.stdout
    assert "the recipe asks 4: too few" in result.stdout


def test_plan_writes_nothing(run: Run, recipe: Path, store: Store) -> None:
    before = sorted(recipe.iterdir())
    assert run("plan", recipe).exit_code == 0
    assert not store.root.exists()
    assert sorted(recipe.iterdir()) == before


def test_plan_as_a_document(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first", "timing")
    told = json.loads(run("plan", recipe, "--json").stdout)
    assert told["experiment"] == "planted"
    assert {one["configuration"]: one["status"] for one in told["runs"]} == {
        **dict.fromkeys(ALL_RUNS, "missing"),
        "k1_first": "done",
        "timing": "done",
    }
    assert told["to_do"] == 4
    assert told["expected_seconds"] == pytest.approx(4 * 2.0)
    assert told["outlook"]["equal"] == [["k1_first", "k1_last"], ["k2_first", "k2_last"]]


def test_plan_tells_a_criterion_that_cannot_be_met(run: Run, tmp_path: Path, store: Store) -> None:
    hopeless = TEXT.replace('"k2_*", "t0.7"', '"k2_*"').replace("speedup = 1.2", "speedup = 5.0")
    result = run("plan", write_recipe(tmp_path / "hopeless", hopeless))
    said = " ".join(result.stdout.split())
    assert "The criterion asks for a speed-up above 5, but the candidates can reach" in said
    assert "by the work they skip at equal steps; no run can confirm it." in said
    on_a_gpu = " ".join(run("plan", tmp_path / "hopeless", "--device", "rtx6000").stdout.split())
    assert "at most on rtx6000 at equal steps" in on_a_gpu
    settings = hopeless.replace('candidates = ["k2_*"]', 'candidates = ["t0.7"]')
    assert "no run can confirm" not in run("plan", write_recipe(tmp_path / "other", settings)).stdout


def test_plan_of_a_part(run: Run, recipe: Path, store: Store) -> None:
    told = json.loads(run("plan", recipe, "--config", "k2_*", "--limit", 3, "--json").stdout)
    assert [(one["configuration"], one["limit"]) for one in told["runs"]] == [("k2_first", 3), ("k2_last", 3)]
    assert {one["id"] for one in told["runs"]}.isdisjoint(
        folder_of(store, recipe, name).id for name in ACCURACY_RUNS
    )


# run


def test_a_dry_run_says_what_would_run_and_writes_nothing(run: Run, recipe: Path, store: Store) -> None:
    result = run("run", recipe, "--dry-run")
    assert result.exit_code == 0
    for name in ALL_RUNS:
        assert lines_with(result, name, folder_of(store, recipe, name).id, "(missing)")
    assert "6 of 6 runs would be executed." in result.stdout
    assert not store.root.exists()
    plant(store, recipe, "k1_first", "k1_last")
    again = run("run", recipe, "--dry-run")
    assert "4 of 6 runs would be executed." in again.stdout
    assert "(done)" not in again.stdout


def test_run_executes_everything_once(run: Run, recipe: Path, store: Store, workers: None) -> None:
    first = run("run", recipe, "--slots", 2)
    assert first.exit_code == 0, first.output
    assert "6 runs on cpu 0, cpu 1" in first.stdout
    assert len(lines_with(first, "done ", "unmask_arith_limit_4")) == 5
    assert "planted: 6 done" in first.stdout
    assert lines_with(first, "k2_last", "75.0%", "25.0%", "1.25x", "done")
    for name in ALL_RUNS:
        assert len(folder_of(store, recipe, name).attempts()) == 1
    second = run("run", recipe)
    assert second.exit_code == 0
    assert "Nothing to do: 6 done." in second.stdout
    assert lines_with(second, "k2_last", "75.0%", "1.25x")
    assert all(len(folder_of(store, recipe, name).attempts()) == 1 for name in ALL_RUNS)


def test_timing_runs_come_last_and_alone(run: Run, recipe: Path, store: Store, workers: None) -> None:
    run("run", recipe, "--slots", 3)
    begun = {
        name: (folder_of(store, recipe, name).attempts()[0].folder / "attempt.json").stat().st_mtime_ns
        for name in ALL_RUNS
    }
    ended = {
        name: (folder_of(store, recipe, name).folder / "result.json").stat().st_mtime_ns
        for name in ACCURACY_RUNS
    }
    assert begun["timing"] > max(ended.values())


def test_run_writes_down_what_the_experiment_stands_for(run: Run, done: Path, store: Store) -> None:
    experiment = read_experiment(store, "planted")
    assert experiment is not None
    assert [member.configuration for member in experiment.members] == list(ALL_RUNS)
    assert (experiment.control, experiment.recipe_text) == ("k1_first", TEXT)
    worker = folder_of(store, done, "k2_last").worker
    assert worker["configuration"] == "k2_last"
    assert worker["lock"] == str((done / "recipe.lock").resolve())
    assert worker["batch_size"] == 16


def test_run_does_only_what_is_missing(run: Run, recipe: Path, store: Store, workers: None) -> None:
    plant(store, recipe, "k1_first", "k2_first", "timing")
    plant_stopped(store.run(runs_of(recipe)["k1_last"].identity))
    result = run("run", recipe)
    assert "3 runs on" in result.stdout
    assert len(folder_of(store, recipe, "k1_last").attempts()) == 2
    assert folder_of(store, recipe, "k1_first").attempts() == []


def test_run_of_a_part_leaves_the_rest(run: Run, recipe: Path, store: Store, workers: None) -> None:
    assert run("run", recipe, "--config", "k1_*", "--task", "unmask_*").exit_code == 0
    states = {name: state_of(folder_of(store, recipe, name)).status for name in ALL_RUNS}
    assert {name for name, status in states.items() if status == "done"} == {"k1_first", "k1_last"}


def test_a_limited_run_never_counts_as_the_full_one(
    run: Run, done: Path, store: Store, workers: None
) -> None:
    result = run("run", done, "--limit", 2, "--config", "k2_*")
    assert "2 runs on" in result.stdout
    assert lines_with(result, "unmask_arith_limit_2", "k2_first")
    experiment = read_experiment(store, "planted")
    assert experiment is not None
    assert sorted({member.limit for member in experiment.members if member.kind == "accuracy"}) == [2, 4]
    assert "Nothing to do: 6 done" in run("run", done).stdout


def test_a_failed_run_is_told_and_waits_for_leave(
    run: Run, recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_FAIL", "k2_first")
    failed = run("run", recipe)
    assert failed.exit_code == 1
    assert lines_with(failed, "unmask_arith_limit_4 k2_first failed: The disk is full.")
    assert "5 done, 1 failed" in failed.stdout
    monkeypatch.delenv("PLANTED_FAIL")
    patient = run("run", recipe)
    assert patient.exit_code == 1
    assert "Nothing to do: 5 done, 1 failed." in patient.stdout
    assert len(folder_of(store, recipe, "k2_first").attempts()) == 1
    retried = run("run", recipe, "--retry-failed")
    assert retried.exit_code == 0
    assert "1 runs on" in retried.stdout
    assert "6 done" in retried.stdout
    assert len(folder_of(store, recipe, "k2_first").attempts()) == 2


@pytest.mark.parametrize(
    "arguments, forced",
    [
        (["--force", "k2_first"], {"k2_first"}),
        (["--force", "k1_last", "t0.7"], {"k1_last", "t0.7"}),
        (["--force", "k1_*"], {"k1_first", "k1_last"}),
        (["--force"], set(ALL_RUNS)),
    ],
)
def test_force_sets_old_results_aside(
    run: Run, done: Path, store: Store, workers: None, arguments: list[str], forced: set[str]
) -> None:
    before = {name: folder_of(store, done, name).result() for name in ALL_RUNS}
    folder_of(store, done, "k2_first").retract("It was measured on a bad day.")
    result = run("run", done, *arguments)
    assert result.exit_code == 0, result.output
    for name in ALL_RUNS:
        folder = folder_of(store, done, name)
        aside = folder.folder / "previous" / "0001" / "result.json"
        assert aside.exists() == (name in forced)
        assert len(folder.attempts()) == (name in forced)
        if name in forced:
            assert json.loads(aside.read_text()) == before[name]
            assert state_of(folder).status == "done"


def test_force_of_an_unknown_name_changes_nothing(run: Run, done: Path, store: Store) -> None:
    line = error_line(run("run", done, "--force", "k1_first", "k9_first"))
    assert line == f"No configuration is called k9_first; there are {', '.join(ALL_RUNS)}."
    assert state_of(folder_of(store, done, "k1_first")).status == "done"


def test_force_does_not_touch_a_run_under_way(run: Run, recipe: Path, store: Store) -> None:
    busy = store.run(runs_of(recipe)["k1_first"].identity)
    busy.new_attempt()
    line = error_line(run("run", recipe, "--force", "k1_first"))
    assert "unmask_arith_limit_4 k1_first is running; cancel it with" in line
    assert len(busy.attempts()) == 1


def test_two_names_of_one_run_are_executed_once(
    run: Run, tmp_path: Path, store: Store, workers: None
) -> None:
    text = TEXT + '\n[[configurations]]\nname = "again"\ndecode = { threshold = 0.7 }\n'
    recipe = write_recipe(tmp_path / "twice", text)
    result = run("run", recipe, "--config", "t0.7", "--config", "again")
    assert "1 runs on" in result.stdout
    assert lines_with(result, "again", "75.0%", "done")
    assert lines_with(result, "t0.7", "75.0%", "done")
    assert len(folder_of(store, recipe, "again").attempts()) == 1


def test_an_edited_recipe_keeps_what_it_still_describes(
    run: Run, done: Path, store: Store, workers: None
) -> None:
    write_recipe(done, TEXT.replace('"t0.7"', '"t0.6"').replace("threshold = 0.7", "threshold = 0.6"))
    result = run("run", done)
    assert "2 runs on" in result.stdout  # the new threshold and the timing run, which holds it
    assert folder_of(store, done, "k1_first").attempts() == []
    assert "2 runs of an earlier text of the recipe are kept" in run("status").stdout


def test_two_recipes_with_one_name_are_refused(run: Run, done: Path, tmp_path: Path, store: Store) -> None:
    other = write_recipe(tmp_path / "other", TEXT.replace("k = [1, 2]", "k = [1, 2, 3]"))
    assert "The name 'planted' belongs to" in error_line(run("run", other))


# The canary.


def test_a_sound_canary_lets_the_rest_go(run: Run, recipe: Path, store: Store, workers: None) -> None:
    result = run("run", recipe, "--canary", 2)
    assert result.exit_code == 0, result.output
    assert "Canary: 2 rows of k1_first, k1_last, k2_first, t0.7 on unmask_arith." in result.stdout
    assert "The canary is sound." in result.stdout
    assert "planted: 6 done" in result.stdout
    small = runs_of(recipe, limit=2)
    tried = {name for name, planned in small.items() if store.find(planned.identity).result() is not None}
    assert tried == {"k1_first", "k1_last", "k2_first", "t0.7"}


def test_an_invalid_canary_stops_the_rest(
    run: Run, recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_OTHERWISE", "k1_last")
    result = run("run", recipe, "--canary", 2)
    assert result.exit_code == 2
    assert "k1_first and k1_last must be equal" in result.stdout
    assert result.stderr.startswith("Error: The canary is invalid, so nothing else was started: ")
    assert result.stderr.count("\n") == 1
    assert all(folder_of(store, recipe, name).attempts() == [] for name in ALL_RUNS)


def test_a_canary_without_a_result_stops_the_rest(
    run: Run, recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_FAIL", "k2_first")
    result = run("run", recipe, "--canary", 2)
    assert result.exit_code == 2
    assert "has no result (The disk is full.); nothing else was started." in result.stderr
    assert all(folder_of(store, recipe, name).attempts() == [] for name in ALL_RUNS)


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
        ["run", "RECIPE"],
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


def test_a_retracted_timing_run_gives_no_speed(run: Run, done: Path, store: Store) -> None:
    assert "1.25x" in run("run", done).stdout
    run("retract", folder_of(store, done, "timing").id, "--reason", "Another job ran.")
    assert "1.25x" not in run("run", done).stdout


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
    busy = store.run(runs_of(recipe)["k1_first"].identity, {"configuration": "k1_first"})
    command = [use_planted_worker(tmp_path), "-m", "unmask", "run-one", str(busy.folder)]
    worker = subprocess.Popen(command, env={"PLANTED_WAIT": "k1_first"}, stderr=subprocess.DEVNULL)
    with worker:
        while state_of(busy).status != "running":
            assert worker.poll() is None
        result = run("cancel", busy.id)
        assert result.stdout == "0 jobs cancelled, 1 workers on this machine stopped.\n"
        assert worker.wait(timeout=30) != 0
    assert state_of(busy).status == "interrupted"
    assert run("cancel", busy.id).stdout == "0 jobs cancelled, 0 workers on this machine stopped.\n"


def test_cancel_of_an_experiment_that_is_done_stops_nothing(run: Run, done: Path) -> None:
    assert run("cancel", "planted").stdout == "0 jobs cancelled, 0 workers on this machine stopped.\n"


# export and import


def read_csv(file: Path, kind: str) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["kind"] == kind]


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
    assert "1 files could not be read." in result.stderr
    assert "Traceback" not in result.output


def test_the_store_is_found_by_option_too(run: Run, done: Path, store: Store, tmp_path: Path) -> None:
    assert "There is no experiment in" in run("status", "--store", tmp_path / "nowhere").stdout
    assert "planted" in run("status", "--store", store.root).stdout


# What starts workers.


def test_a_worker_that_finds_the_result_does_nothing(run: Run, done: Path, store: Store) -> None:
    folder = folder_of(store, done, "k1_first")
    result = run("run-one", folder.folder)
    assert (result.exit_code, result.stdout) == (0, f"{folder.name} is done.\n")
    assert folder.attempts() == []


def test_a_worker_needs_a_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "no_run").mkdir()
    assert "is no run of a store" in error_line(run("run-one", tmp_path / "no_run"))
    assert list((tmp_path / "no_run").iterdir()) == []


def test_the_recipes_own_template_is_what_new_says(run: Run, tmp_path: Path) -> None:
    result = run("new", "mine", "--folder", tmp_path / "recipes")
    assert (
        result.stdout
        == f"{tmp_path}/recipes/mine/recipe.toml is ready; see `unmask plan {tmp_path}/recipes/mine`.\n"
    )
