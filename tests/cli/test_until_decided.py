"""Sweeps that stop when they know, with real workers on the embedded model: stopped, killed, gone on with, whole."""

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
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
from unmask.store.stopping import rows_of, stopped

ROWS = 30
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
RECIPE = f"""
name = "sooner"
hypothesis = "A threshold of 0.01 loses much."
[model]
checkpoint = "embedded"
[decode]
threshold = 0.9
[evaluation]
batch_size = 4
[[tasks]]
name = "unmask_arith"
limit = {ROWS}
[[configurations]]
name = "bad"
decode = {{ threshold = 0.01, sub_block_size = 32 }}
[[configurations]]
name = "control"
[[configurations]]
name = "near"
policy = {{ kind = "trim", keep = 0.0 }}
[success]
task = "unmask_arith"
by = "work"
control = "control"
candidates = ["bad", "near"]
confirm = {{ gain = 1.2, drop = 0.05 }}
[until_decided]
rows = 5
"""


@pytest.fixture(scope="module", autouse=True)
def _quiet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def unmask(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")
    assert done.exit_code == 0, done.output
    return done


@dataclass(frozen=True)
class Sweep:
    """A recipe and a store."""

    recipe: Path
    store: Store

    def run(self, *arguments: object) -> Result:
        return unmask("run", self.recipe, "--store", self.store.root, *arguments)

    def folder(self, configuration: str) -> RunFolder:
        experiment = read_experiment(self.store, "sooner")
        assert experiment is not None
        (member,) = [one for one in experiment.members if one.configuration == configuration]
        return RunFolder(self.store.runs_folder / member.folder)

    def status(self, configuration: str) -> str:
        return state_of(self.folder(configuration)).status

    def copy(self, place: Path) -> "Sweep":
        return Sweep(self.recipe, Store(Path(shutil.copytree(self.store.root, place / "results"))))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep that went to its end."""
    place = tmp_path_factory.mktemp("sooner")
    (place / "recipe.toml").write_text(RECIPE)
    sweep = Sweep(place / "recipe.toml", Store(place / "whole"))
    sweep.run("--to-the-end")
    return sweep


@pytest.fixture(scope="module")
def sooner(whole: Sweep) -> tuple[Sweep, Result]:
    """The same sweep, stopped where it knows."""
    sweep = Sweep(whole.recipe, Store(whole.store.root.with_name("sooner")))
    return sweep, sweep.run()


def same_result(one: RunFolder, other: RunFolder) -> None:
    """Two runs ended alike, word for word, and no answer is there twice."""
    first, second = (msgspec.to_builtins(run.result()) for run in (one, other))
    assert {**first["answers"], "resumed": 0} == {**second["answers"], "resumed": 0}
    for part in ("id", "identity", "metric", "value", "stderr", "rows", "metrics", "effect"):
        assert first[part] == second[part], part
    samples = [list(run.attempt(run.result().attempt).samples()) for run in (one, other)]  # type: ignore[union-attr]
    assert samples[0] == samples[1]
    keys = [answer.key for attempt in one.attempts() for answer in attempt.answers()]
    assert len(keys) == len(set(keys)) == ROWS


def test_a_run_without_the_request_scores_no_rows(whole: Sweep) -> None:
    assert [whole.status(name) for name in ("bad", "control", "near")] == ["done"] * 3
    assert not list(whole.store.root.rglob("rows.jsonl"))


def test_who_is_decided_is_stopped_and_the_control_comes_first(sooner: tuple[Sweep, Result]) -> None:
    sweep, ran = sooner
    lines = [line.split()[:3] for line in ran.output.splitlines() if line.startswith(("done", "stopped"))]
    label = f"unmask_arith_limit_{ROWS}"
    assert lines == [["done", label, "control"], ["stopped", label, "bad"], ["done", label, "near"]]
    bad = sweep.folder("bad")
    assert bad.result() is None
    end = stopped(bad.attempts()[-1])
    assert end is not None
    assert end.rows <= ROWS / 2
    assert end.rows == end.round * 5 == len(list(bad.attempts()[-1].answers()))
    assert "certainly more than 5 points" in end.reason
    assert sweep.status("bad") == "stopped"
    assert "2 done, 1 stopped" in ran.output


def test_rows_are_scored_as_they_are_at_the_end_and_in_the_order(
    whole: Sweep, sooner: tuple[Sweep, Result]
) -> None:
    sweep, _ = sooner
    order = answer_order({"rows": {"unmask_arith": 600}, "limit": ROWS}, 0)
    for name in ("bad", "control", "near"):
        run, there = sweep.folder(name), whole.folder(name)
        result = there.result()
        assert result is not None
        expected = {one.id: one for one in there.attempt(str(result.attempt)).samples()}
        rows = rows_of(run)
        assert list(rows) == order[: len(rows)]
        assert {row: (one.value, one.tokens) for row, one in rows.items()} == {
            row: (expected[row].correct, expected[row].tokens) for row in rows
        }
        assert all(one.effect is not None for one in rows.values())


def test_nothing_is_left_to_do_but_to_go_to_the_end(
    whole: Sweep, sooner: tuple[Sweep, Result], tmp_path: Path
) -> None:
    sweep = sooner[0].copy(tmp_path)
    assert "Nothing to do: 2 done, 1 stopped." in sweep.run().output
    sweep.run("--to-the-end")
    assert sweep.status("bad") == "done"
    for name in ("bad", "control", "near"):
        same_result(sweep.folder(name), whole.folder(name))
    assert msgspec.to_builtins(sweep.folder("bad").result())["answers"]["resumed"] > 0


def test_the_control_ends_too_once_everyone_is_decided(sooner: tuple[Sweep, Result], tmp_path: Path) -> None:
    sweep = sooner[0].copy(tmp_path)
    text = RECIPE.replace('candidates = ["bad", "near"]', 'candidates = ["bad"]')
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    shutil.copy(sweep.recipe.with_suffix(".lock"), recipe.with_suffix(".lock"))
    shutil.rmtree(sweep.store.root / "experiments")
    sweep = Sweep(recipe, sweep.store)
    ran = sweep.run("--config", "control", "--force", "control")
    end = stopped(sweep.folder("control").attempts()[-1])
    assert end is not None, ran.output
    assert end.reason == "every candidate is decided"
    assert end.rows <= ROWS / 2


def killed(sweep: Sweep, configuration: str, after: int) -> None:
    """A worker that is killed as soon as it has left so many answers."""
    run = sweep.folder(configuration)
    before = len(run.answers())
    command = [sys.executable, "-m", "unmask", "run-one", str(run.folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and len(run.answers()) < before + after:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)


def test_kills_lose_nothing_and_double_nothing(
    whole: Sweep, sooner: tuple[Sweep, Result], tmp_path: Path
) -> None:
    """A stopped run is begun anew, killed three times, ends where it did before, is killed on its way on, and ends."""
    sweep = sooner[0].copy(tmp_path)
    before = stopped(sweep.folder("bad").attempts()[-1])
    assert before is not None
    shutil.rmtree(sweep.folder("bad").folder / "attempts")
    for answers in (1, 4, 2):
        killed(sweep, "bad", answers)
        assert sweep.status("bad") in ("interrupted", "stopped")
    sweep.run()
    after = stopped(sweep.folder("bad").attempts()[-1])
    assert after is not None
    assert (after.rows, after.round, after.reason) == (before.rows, before.round, before.reason)
    assert rows_of(sweep.folder("bad")) == rows_of(sooner[0].folder("bad"))
    bad = sweep.folder("bad")
    bad.set_worker(msgspec.structs.replace(bad.worker, until_decided=msgspec.UNSET))
    killed(sweep, "bad", 6)
    assert sweep.status("bad") == "interrupted"
    sweep.run("--to-the-end")
    same_result(bad, whole.folder("bad"))


def test_an_edited_criterion_goes_on_where_it_is_no_longer_certain(
    sooner: tuple[Sweep, Result], tmp_path: Path
) -> None:
    sweep = sooner[0].copy(tmp_path)
    before = sweep.recipe.read_text()
    try:
        sweep.recipe.write_text(before.replace("drop = 0.05", "drop = 0.06"))
        assert "0 of 3 runs would be executed." in sweep.run("--dry-run").output
        sweep.recipe.write_text(before.replace("drop = 0.05", "drop = 0.85"))
        dry = sweep.run("--dry-run").output
    finally:
        sweep.recipe.write_text(before)
    assert "1 of 3 runs would be executed." in dry
    assert "bad" in dry
    assert "undecided by the present criterion" in dry
