"""Configurations that are equal by construction: which run stands for which, and what every reader makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run
from planted import TEXT, folder_of, plant, read_csv, runs_of, write_recipe

from unmask import lab
from unmask.analysis.stored import own_table
from unmask.lab.records import write_down
from unmask.store import RunFolder, Store
from unmask.store.attempt import GeneratedAnswer
from unmask.store.computation import Computation
from unmask.store.experiments import Member, read_experiment
from unmask.store.run_folder import Terms
from unmask.store.store import run_id

LIMITED = "unmask_arith_limit_4"
TIMING = TEXT[TEXT.index("[[timing]]") : TEXT.index("[success]")]
OTHER = 'model = { checkpoint = "Efficient-Large-Model/Fast_dLLM_v2_7B" }'
EFFECT: Any = (1, [], [], 0, 0)


@pytest.fixture
def ran(run: Run, recipe: Path, store: Store, workers: None) -> Path:
    """The recipe, executed by workers that plant results."""
    del workers
    done = run("run", recipe)
    assert done.exit_code == 0, done.output
    return recipe


def members(store: Store) -> dict[str, Member]:
    experiment = read_experiment(store, "planted")
    assert experiment is not None
    return {member.configuration: member for member in experiment.members}


def own_folder(store: Store, recipe: Path, name: str) -> RunFolder:
    return folder_of(store, recipe, name)


def answer(run: RunFolder, texts: dict[str, str], device: str = "cpu") -> None:
    """An attempt that has given these answers."""
    attempt = run.new_attempt()
    attempt.compute_as(Computation(device=device))
    for key, text in texts.items():
        attempt.answer(GeneratedAnswer(key=key, text=text, tokens=1, finish="stop", effect=EFFECT))
    attempt.close()
    attempt.interrupt()


def test_one_run_of_each_behaviour_and_one_twin_of_each_group(ran: Path, store: Store) -> None:
    folders = {name: own_folder(store, ran, name) for name in ("k1_first", "k2_first", "t0.7")}
    timing = [run for run in store.runs() if run.identity["kind"] == "timing"]
    assert {run.name for run in store.runs()} == {*(run.name for run in folders.values()), timing[0].name}
    twins = {name: [twin.worker.configuration for twin in run.twins()] for name, run in folders.items()}
    assert twins == {"k1_first": ["k1_last"], "k2_first": ["k2_last"], "t0.7": []}
    known = members(store)
    assert {name: member.folder for name, member in known.items() if member.kind == "accuracy"} == {
        "k1_first": folders["k1_first"].name,
        "k1_last": folders["k1_first"].name,
        "k2_first": folders["k2_first"].name,
        "k2_last": folders["k2_first"].name,
        "t0.7": folders["t0.7"].name,
    }
    instead = known["k2_last"].instead
    assert instead
    assert (instead.configuration, instead.policy["layers"]) == ("k2_first", "last")
    assert not known["k2_first"].instead


def test_a_timing_run_keeps_one_twin(ran: Path, store: Store) -> None:
    (timing,) = [run for run in store.runs() if run.identity["kind"] == "timing"]
    assert list(timing.identity["configurations"]) == ["k1_first", "k1_last", "k2_first", "t0.7"]
    member = members(store)["timing"]
    assert member.timed_as == {"k2_last": "k2_first"}
    assert member.own == run_id(runs_of(ran)["timing"].identity)


def test_every_reader_asks_whose_run_it_is(run: Run, ran: Path, store: Store, tmp_path: Path) -> None:
    assert "Nothing to do: 6 done." in run("run", ran).stdout
    rows = {row["Configuration"].split(" ")[0]: row for row in lab.results("planted")}
    figures = {name: {**row, "Configuration": ""} for name, row in rows.items()}
    assert figures["k2_last"] == figures["k2_first"]
    assert "equal by construction" in str(rows["k1_last"])
    assert "the run of k2_first" in " ".join(run("status", "planted").stdout.split())
    run("export", "-o", tmp_path / "table.csv")
    table = {row["configuration"]: row for row in read_csv(tmp_path / "table.csv", "accuracy")}
    assert json.loads(table["k2_last"]["policy"])["layers"] == "last"
    assert table["k2_last"]["id"] == table["k2_first"]["id"]
    run("export", "-o", tmp_path / "tree")
    summary = json.loads((tmp_path / "tree" / LIMITED / "k2_last" / "summary.json").read_text())
    assert (summary["config"], summary["model_args"]["policy"]["layers"]) == ("k2_last", "last")
    report = run("report", "planted", "--replay", 0)
    assert report.exit_code == 0, report.output
    text = (store.root / "reports" / "planted" / "results.md").read_text()
    assert "complete (3 accuracy runs, 1 timing run" in text
    assert "The run of k2_first stands for k2_last." in text
    retracted = run("retract", "k2_last", "--reason", "a test").stdout
    assert "It is the run of k2_first, k2_last." in retracted
    assert {row["State"] for row in lab.results("planted") if row["Configuration"].startswith("k2")} == {
        "retracted"
    }


def test_the_verdict_counts_behaviours(ran: Path, store: Store) -> None:
    del ran
    (verdict,) = lab.report("planted", recordings=0, store=store).verdicts
    assert [(each.configuration, each.also) for each in verdict.candidates] == [
        ("k2_first", ("k2_last",)),
        ("t0.7", ()),
    ]
    gains = {each.configuration: each.gain for each in verdict.candidates}
    assert gains["k2_first"] is not None


def test_a_plan_says_what_that_saves(run: Run, recipe: Path, store: Store) -> None:
    told = " ".join(run("plan", recipe).stdout.split())
    assert "4 runs and 2 twins: 6 missing." in told
    assert "3 accuracy runs and 2 twins with 20 rows instead of 5 runs with 20 (0 % fewer)" in told
    document = json.loads(run("plan", recipe, "--limit", 100, "--json").stdout)
    assert document["if_all_ran"] == {"runs": 5, "twins": 0, "rows": 500}
    assert document["as_planned"] == {"runs": 3, "twins": 2, "rows": 340}
    assert [each["run_of"] for each in document["runs"]] == [
        "k1_first",
        "k1_first",
        "k2_first",
        "k2_first",
        "t0.7",
        "timing",
    ]
    every = run("plan", recipe, "--run-equal").stdout
    assert "6 runs: 6 missing." in every
    assert "stands for" not in every
    assert not list(store.root.rglob("worker.json"))


def test_run_equal_executes_them_all_and_what_it_finds_stays(run: Run, ran: Path, store: Store) -> None:
    done = run("run", ran, "--run-equal")
    assert done.exit_code == 0, done.output
    assert own_folder(store, ran, "k2_last").result() is not None
    assert {name: bool(member.instead) for name, member in members(store).items()} == dict.fromkeys(
        members(store), False
    )
    assert "Nothing to do" in run("run", ran).stdout
    assert members(store)["k2_last"].folder == own_folder(store, ran, "k2_last").name


def test_what_has_a_result_of_its_own_keeps_it(run: Run, recipe: Path, store: Store) -> None:
    """A store of an earlier version, in which every configuration has its own run, is read as ever."""
    plant(store, recipe)
    assert "Nothing to do: 6 done." in run("run", recipe).stdout
    assert [name for name, member in members(store).items() if member.instead] == []
    assert not list(store.twins())


def test_a_result_that_is_there_stands_for_the_others(run: Run, recipe: Path, store: Store) -> None:
    plant(store, recipe, "k2_last")
    dry = run("run", recipe, "--dry-run").stdout
    assert f"{LIMITED} k2_first (twin)" in dry
    assert f"{LIMITED} k2_first " not in dry.replace("k2_first (twin)", "")
    write_down(lab.plan(recipe, store=store))
    assert members(store)["k2_first"].folder == own_folder(store, recipe, "k2_last").name


def test_a_part_of_a_recipe_runs_as_itself_and_stands_for_the_rest(
    run: Run, recipe: Path, store: Store, workers: None
) -> None:
    del workers
    first = run("run", recipe, "--config", "k1_last")
    assert first.exit_code == 0, first.output
    assert [each.name for each in store.runs()] == [own_folder(store, recipe, "k1_last").name]
    assert not list(store.twins())
    assert run("run", recipe).exit_code == 0
    assert members(store)["k1_first"].folder == own_folder(store, recipe, "k1_last").name
    assert {twin.worker.configuration for twin in store.twins()} == {"k1_first", "k2_last"}
    assert "Nothing to do: 1 done." in run("run", recipe, "--config", "k1_first").stdout


def test_an_edited_recipe_keeps_the_run_that_stood(run: Run, ran: Path, store: Store) -> None:
    text = (ran / "recipe.toml").read_text()
    edited = text.replace('layers = ["first", "last"]', 'layers = ["last"]').replace("k1_first", "k1_last")
    (ran / "recipe.toml").write_text(
        edited.replace('[[timing]]\ntask = "unmask_arith"\nprompts = 2\nrepeats = 3\n', "")
    )
    again = run("run", ran)
    assert "Nothing to do: 3 done." in again.stdout, again.output
    assert members(store)["k2_last"].folder.endswith(members(store)["k2_last"].id)
    assert lab.check("planted").findings is not None


def test_a_name_that_another_configuration_takes_over_keeps_no_result(
    run: Run, recipe: Path, store: Store, workers: None
) -> None:
    """Also where the call is about a part of the recipe."""
    del workers
    high = '[[configurations]]\nname = "t0.7"\ndecode = { threshold = 0.7 }\n'
    low = high.replace("0.7", "0.6")
    text = TEXT.replace(TIMING, "").replace(high, high + low)
    (recipe / "recipe.toml").write_text(text)
    assert run("run", recipe).exit_code == 0
    swapped = text.replace("threshold = 0.7", "threshold = 0.x").replace("threshold = 0.6", "threshold = 0.7")
    (recipe / "recipe.toml").write_text(swapped.replace("threshold = 0.x", "threshold = 0.6"))
    done = run("run", recipe, "--config", "t0.6")
    assert "Nothing to do: 1 done." in done.stdout, done.output
    thresholds = {
        name: RunFolder(store.runs_folder / member.folder).identity["decode"]["threshold"]
        for name, member in members(store).items()
        if name.startswith("t0.")
    }
    assert thresholds == {"t0.6": 0.7}
    assert "t0.7" in {each.configuration for each in own_table(store).experiments[0].missing}


def test_force_executes_the_run_that_stands_and_its_twin(run: Run, ran: Path, store: Store) -> None:
    before = own_folder(store, ran, "k2_first")
    done = run("run", ran, "--force", "k2_last")
    assert done.exit_code == 0, done.output
    assert f"The run of {LIMITED} k2_first is also that of k2_first." in " ".join(done.stdout.split())
    assert (before.folder / "previous" / "0001" / "result.json").exists()
    (twin,) = before.twins()
    assert (twin.folder / "previous" / "0001").exists()
    assert twin.result() is not None
    assert not (own_folder(store, ran, "k1_first").folder / "previous").exists()


def test_a_failed_run_is_named_once(
    run: Run, recipe: Path, store: Store, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del workers, store
    monkeypatch.setenv("PLANTED_FAIL", "k2_first,k1_last")
    done = run("run", recipe)
    assert done.exit_code == 1
    assert done.stdout.count(f"{LIMITED} k2_first failed") == 1
    assert f"{LIMITED} k1_last (twin) failed" in done.stdout


def test_a_twin_that_answers_otherwise_is_said_loudly(run: Run, recipe: Path, store: Store) -> None:
    write_down(lab.plan(recipe, store=store))
    first = own_folder(store, recipe, "k2_first")
    (twin,) = first.twins()
    assert "no twin has shown yet" in json.dumps([f.sentence for f in lab.check("planted").findings])
    texts = {"a": "one", "b": "two", "c": "three"}
    answer(first, texts)
    answer(twin, {**texts, "later": "four"})
    assert not [
        f for f in lab.check("planted").findings if f.guard == "twins-differ" and f.severity != "info"
    ]
    answer(twin, {"d": "five"})
    answer(first, {"d": "six"})
    checked = run("check", "planted")
    assert checked.exit_code == 1
    assert "k2_last must answer as k2_first does" in " ".join(checked.stdout.split())
    assert "1 of 4 answers differ" in " ".join(checked.stdout.split())
    assert "twin k2_last: 1 of 4 answers differ" in " ".join(run("status", "planted").stdout.split())


def test_terms_count_behaviours_and_name_the_runs_that_stand(recipe: Path, store: Store) -> None:
    large = TEXT.replace("limit = 4", "limit = 200").replace("speedup = 1.2", "gain = 1.2")
    (recipe / "recipe.toml").write_text(large)
    write_recipe(recipe, large)
    write_down(lab.plan(recipe, store=store, until_decided=True, limit=200))
    folder = {name: members(store)[name].folder for name in ("k1_first", "k2_first", "k2_last", "t0.7")}
    terms = RunFolder(store.runs_folder / folder["k2_first"]).worker.until_decided
    assert isinstance(terms, Terms)
    assert terms.control == folder["k1_first"]
    assert terms.candidates == (folder["k2_first"], folder["t0.7"])
    assert folder["k2_last"] == folder["k2_first"]
    assert terms.comparisons == 2
    (twin,) = RunFolder(store.runs_folder / folder["k2_first"]).twins()
    assert not twin.worker.until_decided


SCORED = """\
name = "scored"
hypothesis = "Nothing acts on letters."
[model]
checkpoint = "embedded"
[[tasks]]
name = "unmask_choice"
estimator = "chain"
[[tasks]]
name = "unmask_choice_text"
[[configurations]]
name = "full"
[[configurations]]
name = "trim"
policy = { kind = "trim" }
[[configurations]]
name = "t0.7"
decode = { threshold = 0.7 }
[[configurations]]
name = "small"
decode = { sub_block_size = 4 }
"""


def test_what_cannot_act_on_a_task_is_equal_there(tmp_path: Path, store: Store) -> None:
    """Letters leave a policy no step, and given tokens leave a threshold nothing to choose."""
    planned = lab.plan(write_recipe(tmp_path / "scored", SCORED), store=store)
    runs = {(run.planned.task, run.planned.configuration): run.executed.configuration for run in planned.runs}
    assert runs == {
        ("unmask_choice", "full"): "full",
        ("unmask_choice", "trim"): "full",
        ("unmask_choice", "t0.7"): "full",
        ("unmask_choice", "small"): "small",
        ("unmask_choice_text", "full"): "full",
        ("unmask_choice_text", "trim"): "trim",
        ("unmask_choice_text", "t0.7"): "full",
        ("unmask_choice_text", "small"): "small",
    }
    twins = [(twin.planned.task, twin.planned.configuration) for twin in planned.twins]
    assert twins == [("unmask_choice", "trim"), ("unmask_choice_text", "t0.7")]


def test_the_run_of_one_is_never_that_of_another_checkpoint(tmp_path: Path, store: Store) -> None:
    mine = 'name = "trim"\npolicy = { kind = "trim" }'
    text = SCORED.replace(mine, f'name = "other"\n{OTHER}')
    assert text != SCORED
    planned = lab.plan(write_recipe(tmp_path / "two", text), store=store)
    executed = {run.planned.configuration: run.executed.configuration for run in planned.runs}
    assert executed["other"] == "other"
    assert executed["t0.7"] == "full"
