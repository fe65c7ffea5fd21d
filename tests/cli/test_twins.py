"""Twins with real workers on the embedded model: answered, killed, gone on with, damaged, and beside their own runs."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from unmask.cli import app
from unmask.spec.conduct import answer_order
from unmask.store import RunFolder, Store
from unmask.store.experiments import read_experiment
from unmask.store.state import state_of
from unmask.store.stopping import stopped
from unmask.store.twins import twin_of

pytestmark = pytest.mark.slow
ROWS, TWIN = 24, 20
RECIPE = f"""
name = "alike"
hypothesis = "Subsets of layers are equal under output."
[model]
checkpoint = "embedded"
[decode]
max_new_tokens = 24
[evaluation]
batch_size = 4
[[tasks]]
name = "unmask_arith"
limit = {ROWS}
[[tasks]]
name = "unmask_choice"
limit = {ROWS}
[[grid]]
name = "k2_{{layers}}"
policy = {{ kind = "layer_reuse", unit = "output", k = 2 }}
[grid.axes]
layers = ["first", "last"]
"""


@pytest.fixture(scope="module", autouse=True)
def _quiet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("TQDM_DISABLE", "1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def unmask(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Store]:
    """The recipe and its store, after one run of it."""
    place = tmp_path_factory.mktemp("alike")
    (place / "recipe.toml").write_text(RECIPE)
    unmask("run", place, "--store", place / "results")
    return place / "recipe.toml", Store(place / "results")


def member_run(store: Store, task: str, name: str) -> RunFolder:
    experiment = read_experiment(store, "alike")
    assert experiment is not None
    (member,) = [one for one in experiment.members if (one.task, one.configuration) == (task, name)]
    return RunFolder(store.runs_folder / member.folder)


def copied(ran: tuple[Path, Store], place: Path) -> Store:
    return Store(Path(shutil.copytree(ran[1].root, place / "results")))


@pytest.mark.parametrize("task", ["unmask_arith", "unmask_choice"])
def test_a_twin_answers_the_first_rows_word_for_word(ran: tuple[Path, Store], task: str) -> None:
    run = member_run(ran[1], task, "k2_first")
    assert run.name == member_run(ran[1], task, "k2_last").name
    (twin,) = run.twins()
    assert twin.identity["policy"]["layers"] == "last"
    theirs, own = run.answers(), twin.answers()
    assert len(own) == TWIN < len(theirs) == ROWS
    for key, answer in own.items():
        first, second = (msgspec.to_builtins(each) for each in (answer, theirs[key]))
        assert {**first, "effect": 0, "shared": 0} == {**second, "effect": 0, "shared": 0}
    shown = twin_of(run)
    assert shown is not None
    assert (shown.configuration, shown.equal, shown.other, shown.change) == ("k2_last", TWIN, 0, "")
    end = stopped(twin.attempts()[-1])
    assert end is not None
    assert (end.rows, end.of) == (TWIN, ROWS)


def test_its_rows_are_the_first_of_the_order(ran: tuple[Path, Store]) -> None:
    """The answers of a run that ended early hold them too."""
    run = member_run(ran[1], "unmask_arith", "k2_first")
    order = answer_order({"rows": {"unmask_arith": 600}, "limit": ROWS}, 0)[:TWIN]
    result = run.result()
    assert result is not None
    samples = {one.id: one for one in run.attempt(str(result.attempt)).samples()}
    (twin,) = run.twins()
    texts = sorted(answer.text for answer in twin.answers().values())  # type: ignore[union-attr]
    assert texts == sorted(samples[row].answer for row in order)


def test_a_killed_twin_goes_on_from_its_answers(ran: tuple[Path, Store], tmp_path: Path) -> None:
    store = copied(ran, tmp_path)
    run = member_run(store, "unmask_arith", "k2_first")
    (twin,) = run.twins()
    shutil.rmtree(twin.folder / "attempts")
    for answers in (1, 5):
        command = [sys.executable, "-m", "unmask", "run-one", str(twin.folder)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 120
            while process.poll() is None and len(twin.answers()) < answers:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert state_of(twin).status in ("interrupted", "stopped")
    done = unmask("run", ran[0], "--store", store.root)
    assert "k2_last (twin)" in done.output or state_of(twin).status == "stopped"
    keys = [answer.key for attempt in twin.attempts() for answer in attempt.answers()]
    assert len(keys) == len(set(keys)) == TWIN
    assert len(run.attempts()) == 1
    assert (twin_of(run) or twin).equal == TWIN  # type: ignore[union-attr]


def test_a_spoiled_answer_is_found(ran: tuple[Path, Store], tmp_path: Path) -> None:
    store = copied(ran, tmp_path)
    (twin,) = member_run(store, "unmask_arith", "k2_first").twins()
    file = twin.attempts()[0].folder / "answers.jsonl"
    lines = file.read_text().splitlines()
    answer = msgspec.json.decode(lines[3])
    lines[3] = msgspec.json.encode({**answer, "text": answer["text"] + "!"}).decode()
    file.write_text("\n".join(lines) + "\n")
    checked = " ".join(unmask("check", "alike", "--store", store.root, code=1).output.split())
    assert "k2_last must answer as k2_first does" in checked
    assert f"1 of {TWIN} answers differ" in checked


def test_what_all_answer_is_what_the_one_run_says(ran: tuple[Path, Store], tmp_path: Path) -> None:
    store = copied(ran, tmp_path)
    before = {task: member_run(store, task, "k2_first") for task in ("unmask_arith", "unmask_choice")}
    unmask("run", ran[0], "--store", store.root, "--run-equal")
    for task, run in before.items():
        own = member_run(store, task, "k2_last")
        assert own.name != run.name
        results = [msgspec.to_builtins(each.result()) for each in (run, own)]
        assert results[0]["answers"] == results[1]["answers"]
        assert results[0]["value"] == results[1]["value"]
    assert "invalid" not in unmask("status", "alike", "--store", store.root).output


def test_a_twin_has_a_log_and_is_missed_when_it_is_gone(ran: tuple[Path, Store], tmp_path: Path) -> None:
    store = copied(ran, tmp_path)
    (twin,) = member_run(store, "unmask_arith", "k2_first").twins()
    assert "is stopped after 20 of 24 rows" in unmask("logs", twin.id, "--store", store.root).output
    shutil.rmtree(twin.folder)
    dry = unmask("run", ran[0], "--store", store.root, "--dry-run").output
    assert "k2_last (twin)" in dry
    assert "1 of 4 runs would be executed" in dry
