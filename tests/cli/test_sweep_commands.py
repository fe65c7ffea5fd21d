"""`new`, `plan` and `run` with planted results and workers: what they show, what they change, what they leave alone."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from cli_cases import Run, error_line, lines_with
from planted import ACCURACY_RUNS, ALL_RUNS, TEXT, folder_of, plant, plant_stopped, runs_of, write_recipe

from unmask.spec.recipe import read_recipe
from unmask.store import Store
from unmask.store.experiments import read_experiment
from unmask.store.result import AnyResult
from unmask.store.state import state_of

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


def test_the_template_shows_what_a_recipe_can_vary(run: Run, tmp_path: Path) -> None:
    run("new", "mine", "--folder", tmp_path)
    recipe = read_recipe(tmp_path / "mine")
    policies = {recipe.policy_of(each).short_name or each.policy["kind"] for each in recipe.expanded()}
    assert {"trim", "k = 2", "combine", "full"} <= policies
    assert {recipe.decode_of(each).threshold for each in recipe.expanded()} == {0.7, 0.8, 0.9}
    assert '"decode.threshold" = ' in (tmp_path / "mine" / "recipe.toml").read_text()
    assert 'unit = "residual"' in (tmp_path / "mine" / "recipe.toml").read_text()


def test_new_leaves_what_is_there_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "recipe.toml").write_text("precious")
    assert "is there already; choose another name" in error_line(run("new", "mine", "--folder", tmp_path))
    assert (tmp_path / "mine" / "recipe.toml").read_text() == "precious"


# plan


def test_plan_shows_runs_ceilings_controls_and_samples(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first")
    result = run("plan", recipe, "--run-equal")
    assert result.exit_code == 0
    assert lines_with(result, "k1_first", "never acts", "done")
    assert lines_with(result, "k2_last", "7.00", "missing")
    assert "Rows: unmask_arith 4." in result.stdout
    assert "Timing of unmask_arith: 5 configurations, 2 prompts, 3 rounds; missing." in result.stdout
    assert "6 runs: 1 done, 5 missing." in result.stdout
    said = " ".join(result.stdout.split())
    assert (
        "To do: 5 runs, about 8.0 s one after the other, by 1 earlier run of the same tasks on this machine (1 run by "
        "those with other decode settings, which take other steps); not counted: 1 without a comparable earlier run."
        in said
    )
    assert "Equal by construction: k1_first, k1_last." in result.stdout
    assert "Equal by construction: k2_first, k2_last." in result.stdout
    assert "rows are needed" in result.stdout
    assert "the recipe asks 4: too few" in result.stdout


def test_plan_asks_for_no_more_rows_than_there_are(run: Run, tmp_path: Path, store: Store) -> None:
    recipe = write_recipe(tmp_path / "planted", TEXT.replace("limit = 4\n", ""))
    said = " ".join(run("plan", recipe).stdout.split())
    assert "all that there are, so that the verdict may stay undecided" in said
    assert "raise the limit" not in said


def test_plan_writes_nothing(run: Run, recipe: Path, store: Store) -> None:
    before = sorted(recipe.iterdir())
    assert run("plan", recipe).exit_code == 0
    assert not store.root.exists()
    assert sorted(recipe.iterdir()) == before


def test_plan_as_a_document(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k1_first", "timing")
    told = json.loads(run("plan", recipe, "--json", "--run-equal").stdout)
    assert told["experiment"] == "planted"
    assert {one["configuration"]: one["status"] for one in told["runs"]} == {
        **dict.fromkeys(ALL_RUNS, "missing"),
        "k1_first": "done",
        "timing": "done",
    }
    assert told["to_do"] == 4
    assert told["expected_seconds"] == 8.0
    assert told["expected_by"] == (
        "1 earlier run of the same tasks on this machine (1 run by those with other decode settings, which take other "
        "steps)"
    )
    assert {one["configuration"]: one["expected_seconds"] for one in told["runs"]} == {
        **dict.fromkeys(("k1_last", "k2_first", "k2_last", "t0.7"), 2.0),
        **dict.fromkeys(("k1_first", "timing")),
    }
    assert told["outlook"]["equal"] == [["k1_first", "k1_last"], ["k2_first", "k2_last"]]


def test_plan_says_that_the_time_is_unknown_before_the_first_run(
    run: Run, recipe: Path, store: Store
) -> None:
    said = " ".join(run("plan", recipe, "--run-equal").stdout.split())
    assert "To do: 6 runs, 20 answers, some" in said
    assert "how long is unknown: try `unmask run RECIPE --canary 10`." in said
    told = json.loads(run("plan", recipe, "--json").stdout)
    assert (told["expected_seconds"], told["expected_by"]) == (None, None)
    assert {one["expected_seconds"] for one in told["runs"]} == {None}


def test_plan_tells_a_criterion_that_cannot_be_met(run: Run, tmp_path: Path, store: Store) -> None:
    hopeless = TEXT.replace('"k2_*", "t0.7"', '"k2_*"').replace("speedup = 1.2", "speedup = 5.0")
    result = run("plan", write_recipe(tmp_path / "hopeless", hopeless))
    said = " ".join(result.stdout.split())
    assert (
        "Criterion: some candidate reaches 5x by speed within 5 points of k1_first on unmask_arith." in said
    )
    assert "The criterion asks for 5x by speed, but the candidates can reach" in said
    assert "by the work they skip at equal steps; no run can confirm it." in said
    on_a_gpu = " ".join(run("plan", tmp_path / "hopeless", "--device", "rtx6000").stdout.split())
    assert "at most on rtx6000 at equal steps" in on_a_gpu
    counted = hopeless.replace("speedup", "gain").replace("[success]", '[success]\nby = "work"')
    by_work = " ".join(
        run("plan", write_recipe(tmp_path / "counted", counted), "--device", "rtx6000").stdout.split()
    )
    assert "The criterion asks for 5x by counted work, but" in by_work
    assert "at most by the work they skip at equal steps; no run can confirm it." in by_work
    predicted = counted.replace('by = "work"', 'by = "predicted:h100"')
    by_prediction = " ".join(run("plan", write_recipe(tmp_path / "predicted", predicted)).stdout.split())
    assert "asks for 5x by speed predicted for the h100, but the candidates can reach 1." in by_prediction
    assert "at most on h100 at equal steps; no run can confirm it." in by_prediction
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
    result = run("run", recipe, "--dry-run", "--run-equal")
    assert result.exit_code == 0
    for name in ALL_RUNS:
        assert lines_with(result, name, folder_of(store, recipe, name).id, "(missing)")
    assert "6 of 6 runs would be executed." in result.stdout
    assert not store.root.exists()
    plant(store, recipe, "k1_first", "k1_last")
    again = run("run", recipe, "--dry-run", "--run-equal")
    assert "4 of 6 runs would be executed." in again.stdout
    assert "(done)" not in again.stdout


def test_run_executes_everything_once(run: Run, recipe: Path, store: Store, workers: None) -> None:
    first = run("run", recipe, "--slots", 2, "--run-equal")
    assert first.exit_code == 0, first.output
    assert "6 runs on cpu 0, cpu 1" in first.stdout
    assert len([line for line in first.stdout.splitlines() if line.startswith("done ")]) == 6
    assert "planted: 6 done" in first.stdout
    assert "Predicted" not in first.stdout
    assert lines_with(first, "k2_last", "75.0 (30.1 to 95.4)", "1.00 (1.00 to 1.00)", "done")
    assert "Intervals of drops and speed-ups: 97.5 % on unmask_arith" in first.stdout
    for name in ALL_RUNS:
        assert len(folder_of(store, recipe, name).attempts()) == 1
    second = run("run", recipe)
    assert second.exit_code == 0
    assert "Nothing to do: 6 done." in second.stdout
    assert "Predicted" not in second.stdout
    assert lines_with(second, "k2_last", "75.0 (30.1 to 95.4)", "1.00 (1.00 to 1.00)")
    assert all(len(folder_of(store, recipe, name).attempts()) == 1 for name in ALL_RUNS)


def test_timing_runs_come_last_and_alone(run: Run, recipe: Path, store: Store, workers: None) -> None:
    run("run", recipe, "--slots", 3, "--run-equal")
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
    assert worker.configuration == "k2_last"
    assert worker.lock == str((done / "recipe.lock").resolve())
    assert worker.batch_size == 16


def test_run_does_only_what_is_missing(run: Run, recipe: Path, store: Store, workers: None) -> None:
    plant(store, recipe, "k1_first", "k2_first", "timing")
    plant_stopped(store.run(runs_of(recipe)["k1_last"].identity))
    result = run("run", recipe, "--run-equal")
    assert "3 runs on" in result.stdout
    assert len(folder_of(store, recipe, "k1_last").attempts()) == 2
    assert folder_of(store, recipe, "k1_first").attempts() == []


def test_run_of_a_part_leaves_the_rest(run: Run, recipe: Path, store: Store, workers: None) -> None:
    assert run("run", recipe, "--config", "k1_*", "--task", "unmask_*", "--run-equal").exit_code == 0
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
    failed = run("run", recipe, "--run-equal")
    assert failed.exit_code == 1
    assert lines_with(failed, "unmask_arith_limit_4 k2_first failed: The disk is full.")
    assert "5 done, 1 failed" in failed.stdout
    monkeypatch.delenv("PLANTED_FAIL")
    patient = run("run", recipe, "--run-equal")
    assert patient.exit_code == 1
    assert "Nothing to do: 5 done, 1 failed." in patient.stdout
    assert len(folder_of(store, recipe, "k2_first").attempts()) == 1
    retried = run("run", recipe, "--retry-failed", "--run-equal")
    assert retried.exit_code == 0
    assert "1 run on" in retried.stdout
    assert "6 done" in retried.stdout
    said = " ".join(retried.stdout.split())
    assert re.search(
        r"Predicted 2\.0 s of work, took [\d.]+ s with the starting of workers; you waited [\d.]+ s\.", said
    )
    assert len(folder_of(store, recipe, "k2_first").attempts()) == 2


def test_a_worker_that_dies_at_once_is_told(
    run: Run, recipe: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    result = run("run", recipe, "--config", "k1_first")
    assert result.exit_code == 1
    assert "unmask_arith_limit_4 k1_first missing: its worker ended before it began" in result.stdout


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
            assert msgspec.json.decode(aside.read_bytes(), type=AnyResult) == before[name]
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
    assert "1 run on" in result.stdout
    assert lines_with(result, "again", "75.0 (", "done")
    assert lines_with(result, "t0.7", "75.0 (", "done")
    assert len(folder_of(store, recipe, "again").attempts()) == 1


def test_an_edited_recipe_keeps_what_it_still_describes(
    run: Run, done: Path, store: Store, workers: None
) -> None:
    write_recipe(done, TEXT.replace('"t0.7"', '"t0.6"').replace("threshold = 0.7", "threshold = 0.6"))
    result = run("run", done)
    assert "2 runs on" in result.stdout  # the new threshold and the timing run, which holds it
    assert folder_of(store, done, "k1_first").attempts() == []
    assert "2 runs of an earlier text of the recipe: kept, but in no table." in run("status").stdout


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
    small = {name: store.find(planned.identity) for name, planned in runs_of(recipe, limit=2).items()}
    assert [name for name in ACCURACY_RUNS if small[name].result() is None] == ["k2_last"]
    experiment = read_experiment(store, "planted")
    assert experiment is not None
    assert not {member.id for member in experiment.members} & {small[name].id for name in ACCURACY_RUNS}


def test_an_invalid_canary_stops_the_rest(
    run: Run, recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_OTHERWISE", "k1_last")
    result = run("run", recipe, "--canary", 2)
    assert result.exit_code == 2
    assert "invalid: unmask_arith (limit 2): k1_first, k1_last must be equal" in result.stdout
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
