"""What is said of sweeps that stop when they know: plans, refusals, tables, verdicts and reports, without any model."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_cases import Run, error_line
from planted import LAYERS, TEXT, result_of, write_recipe

from unmask import lab
from unmask.analysis.stored import experiment_table
from unmask.analysis.verdict import verdict
from unmask.analysis.words import MISSING, TIMES
from unmask.cost.work_sums import KindSums, WorkSums
from unmask.lab.records import write_down
from unmask.spec.conduct import answer_order
from unmask.store import RunFolder, Store
from unmask.store.attempt import Computation
from unmask.store.experiments import read_experiment
from unmask.store.run_folder import Terms
from unmask.store.stopping import AnsweredRow, add_rows, stop

ROWS = 200
CRITERION = TEXT[TEXT.index("[success]") :]
LARGE = (
    TEXT.replace("limit = 4", f"limit = {ROWS}")
    .replace(
        'candidates = ["k2_*", "t0.7"]\nconfirm = { speedup = 1.2',
        'by = "work"\ncandidates = ["k2_*", "t0.7"]\nconfirm = { gain = 1.2',
    )
    .replace('[[timing]]\ntask = "unmask_arith"\nprompts = 2\nrepeats = 3\n', "")
)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "recipes" / "large", LARGE)


def folder(store: Store, configuration: str) -> RunFolder:
    experiment = read_experiment(store, "planted")
    assert experiment is not None
    (member,) = [one for one in experiment.members if one.configuration == configuration]
    return RunFolder(store.runs_folder / member.folder)


def effect(flops: int) -> WorkSums:
    """Ten block forwards of a request."""
    sums = WorkSums(LAYERS, 1, flops=flops)
    sums.kinds["block"].add(KindSums(10, 320, 320, 0))
    return sums


def end(
    store: Store, configuration: str, values: Sequence[float], flops: int, reason: str = "it is known"
) -> None:
    """A run that was stopped after these rows."""
    run = folder(store, configuration)
    order = answer_order(run.identity["task"], 0)
    attempt = run.new_attempt()
    attempt.compute_as(Computation(device="cpu"))
    rows = [
        AnsweredRow(row=row, value=value, tokens=20, effect=effect(flops).as_row())
        for row, value in zip(order, values, strict=False)
    ]
    add_rows(attempt, rows)
    stop(attempt, len(rows), ROWS, len(rows) // 20, reason)


@pytest.fixture
def ended(large: Path, store: Store) -> Path:
    """A sweep in which everything was stopped: k2_first is as good as the control and cheaper, the others are bad."""
    write_down(lab.plan(large, until_decided=True, run_equal=True))
    end(store, "k1_first", [1.0] * 180, 1_000, "every candidate is decided")
    end(store, "k2_first", [1.0] * 180, 500)
    end(store, "k2_last", [0.0] * 40, 400)
    end(store, "t0.7", [0.0] * 40, 900)
    return large


def test_a_plan_says_how_likely_and_how_soon_runs_are_decided(run: Run, large: Path, store: Store) -> None:
    told = run("plan", large, "--until-decided")
    assert told.exit_code == 0, told.output
    assert "Until decided, with a look after every 64 rows (simulated):" in told.stdout
    assert "A candidate that loses 15 points is decided with a probability of" in told.stdout
    document = json.loads(run("plan", large, "--until-decided", "--json").stdout)
    decisions = {round(each["loss"], 2): each for each in document["decisions"]}
    assert set(decisions) == {0.0, 0.05, 0.1, 0.15}
    assert decisions[0.15]["probability"] > decisions[0.05]["probability"]
    assert all(each["rows"] <= each["of"] == ROWS for each in decisions.values())
    assert "Until decided" not in run("plan", large).stdout
    assert json.loads(run("plan", large, "--json").stdout)["decisions"] == []
    assert not list(store.root.rglob("worker.json"))


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (
            LARGE[: LARGE.index("[success]")],
            ["--until-decided"],
            "if there is a criterion; give the recipe a [success]",
        ),
        (
            LARGE.replace("[success]", "[until_decided]\nrows = 201\n\n[success]"),
            [],
            "until_decided.rows is 201, but unmask_arith asks 200 rows; make a round smaller than that.",
        ),
        (
            LARGE.replace(f"limit = {ROWS}", f'limit = {ROWS}\nmetric = "inst_level_strict_acc,none"'),
            ["--until-decided"],
            "inst_level_strict_acc,none of unmask_arith is no mean over rows",
        ),
        (LARGE.replace("[success]", "[until_decided]\nrows = 0\n\n[success]"), [], "`int` >= 1"),
        (
            LARGE.replace("[success]", "[until_decided]\nrounds = 3\n\n[success]"),
            [],
            "unknown field `rounds`",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_what_cannot_stop_is_refused_in_one_sentence(
    run: Run, tmp_path: Path, store: Store, verb: str, text: str, arguments: list[str], sentence: str
) -> None:
    recipe = write_recipe(tmp_path / "recipes" / "bad", LARGE)
    (recipe / "recipe.toml").write_text(text)
    refused = run(verb, recipe, *arguments)
    assert refused.exit_code == 2
    assert sentence in error_line(refused)
    assert not store.root.exists()


def test_only_the_runs_of_the_criterion_may_end(run: Run, large: Path, store: Store) -> None:
    write_down(lab.plan(large, until_decided=True, run_equal=True))
    terms = folder(store, "k1_first").worker.until_decided
    assert isinstance(terms, Terms)
    assert terms.control == folder(store, "k1_first").name
    assert set(terms.candidates) == {folder(store, name).name for name in ("k2_first", "k2_last", "t0.7")}
    assert (terms.bounds, terms.comparisons) == ((0.05,), 4)
    assert not isinstance(folder(store, "k1_last").worker.until_decided, Terms)
    write_down(lab.plan(large))
    assert not isinstance(folder(store, "k1_first").worker.until_decided, Terms)
    assert run("plan", large).exit_code == 0


def test_the_verdict_goes_by_the_rows_that_were_answered(ended: Path, store: Store) -> None:
    judged = verdict(experiment_table(store, "planted"), "planted")
    assert (judged.answer, judged.confirmed) == ("confirmed", ("k2_first",))
    assert "98.8 % intervals that hold at every look" in judged.basis
    assert "Ended before the last row: k1_first (180 of 200), k2_first (180 of 200)" in judged.basis
    by_name = {candidate.configuration: candidate for candidate in judged.candidates}
    first, last = by_name["k2_first"], by_name["k2_last"]
    assert first.gain is not None
    assert first.loss is not None
    assert last.loss is not None
    assert (first.gain.value, first.loss.rows, first.loss.p_value) == (2.0, 180, None)
    assert (last.loss.value, last.loss.rows) == (1.0, 40)
    assert last.loss.interval.low > 0.05


def test_tables_show_rows_and_intervals_and_no_p_value(run: Run, ended: Path, store: Store) -> None:
    (told,) = json.loads(run("results", "planted", "--json").stdout).values()
    by_name = {row["Configuration"]: row for row in told}
    assert by_name["k1_first (control)"]["State"] == "stopped"
    assert by_name["k2_last"]["Accuracy (%)"] == "0.0"
    assert by_name["k2_last"]["Drop vs k1_first (points)"].startswith("100.0 (")
    assert by_name["k2_first"][f"Less work ({TIMES})"] == "2.00"
    assert by_name["k1_last"]["State"] == "missing"
    assert "98.8 % intervals that hold at every look" in run("results", "planted").stdout
    reported = run("report", "planted")
    assert reported.exit_code == 0, reported.output
    text = (store.root / "reports" / "planted" / "results.md").read_text()
    assert "Decided before the last row of unmask_arith" in text
    assert "| k2_last | 40 of 200 | 0.0 | 100.0 (" in text
    assert "There is no result yet." not in text
    assert "Decided before the last row" in (store.root / "reports" / "planted" / "report.html").read_text()
    status = run("status", "planted").stdout
    assert "stopped" in status
    assert "it is known" in " ".join(status.split())
    assert run("check", "planted").exit_code == 0


def test_a_retracted_control_confirms_nothing(run: Run, ended: Path, store: Store) -> None:
    control = folder(store, "k1_first")
    assert control.publish(result_of(control, "k1_first"))
    control.retract("the wrong model was loaded")
    judged = verdict(experiment_table(store, "planted"), "planted")
    assert not judged.confirmed
    assert all(candidate.loss is None for candidate in judged.candidates)
    told = {verb: run(verb, "planted") for verb in ("results", "report", "status", "check")}
    assert {verb: (each.exit_code, each.exception) for verb, each in told.items()} == dict.fromkeys(
        told, (0, None)
    )
    (rows,) = json.loads(run("results", "planted", "--json").stdout).values()
    assert [row["Drop vs k1_first (points)"] for row in rows if row["Configuration"] == "k2_first"] == [
        MISSING
    ]


def test_who_looked_has_looked(ended: Path, store: Store) -> None:
    """A sweep that goes to its end after all keeps its anytime intervals; a recipe of its own has ordinary ones."""
    write_down(lab.plan(ended, until_decided=False, run_equal=True))
    about = experiment_table(store, "planted").experiment("planted")
    assert about.sequential is not None
    other = write_recipe(ended.with_name("other"), LARGE.replace('name = "planted"', 'name = "other"'))
    write_down(lab.plan(other))
    assert experiment_table(store, "other").experiment("other").sequential is None


def test_an_edited_criterion_is_said_while_runs_are_stopped_or_under_way(
    run: Run, ended: Path, store: Store
) -> None:
    dry = run("run", ended, "--until-decided", "--run-equal", "--dry-run").stdout
    assert "1 of 5 runs would be executed" in dry, "k1_last is neither the control nor a candidate"
    strict = LARGE.replace("drop = 0.05", "drop = 0.02")
    (ended / "recipe.toml").write_text(strict)
    told = " ".join(run("run", ended, "--until-decided", "--run-equal", "--dry-run").stdout.split())
    assert "unmask_arith_limit_200 k2_first: stopped before, but undecided by the present criterion" in told
    assert "k2_last: stopped" not in told
    folder(store, "k2_last").new_attempt()
    told = " ".join(run("run", ended, "--until-decided", "--run-equal", "--dry-run").stdout.split())
    assert "k2_last: under way, and judged by the present criterion from the next round on." in told
