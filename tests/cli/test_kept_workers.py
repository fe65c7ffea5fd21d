"""Real workers that keep the embedded model: which process took which run, and that results are as from fresh ones."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from unmask.store import RunFolder, Store
from unmask.store.experiments import read_experiment
from unmask.store.state import state_of

RECIPE = """
name = "kept"
hypothesis = "A worker that keeps its model answers as a fresh one does."
[model]
checkpoint = "embedded"
[decode]
max_new_tokens = 64
[evaluation]
batch_size = 2
[[tasks]]
name = "unmask_arith"
limit = 3
[[configurations]]
name = "full"
[[configurations]]
name = "second"
policy = POLICY
[[configurations]]
name = "trim"
policy = { kind = "trim" }
"""
TIMING = """
[[timing]]
task = "unmask_arith"
prompts = 1
repeats = 1
"""
OWN = '{ kind = "custom", target = "kept_policy:Policy" }'
POLICY = """\
import os
import time
from pathlib import Path


class Policy:
    needs_features = False

    def plan(self, view):
        from unmask.engine.policy import Full

        Path(os.environ["KEPT_BEGUN"]).touch()
        {act}
        return Full().plan(view)
"""


@dataclass(frozen=True)
class Sweep:
    """A recipe, its store, and a place for a policy of one's own."""

    folder: Path

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def write(self, second: str, timing: str = "") -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "recipe.toml").write_text(RECIPE.replace("POLICY", second) + timing)

    def policy(self, act: str) -> None:
        (self.folder / "kept_policy.py").write_text(POLICY.format(act=act))

    def command(self, *more: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "unmask", "run", str(self.folder / "recipe.toml")]
        words += ["--store", str(self.store.root), "--slots", "1", *more]
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(self.folder),
                "KEPT_BEGUN": str(self.folder / "begun"),
            },
        )

    def run(self, *more: str) -> tuple[int, str]:
        with self.command(*more) as command:
            said, _ = command.communicate(timeout=240)
        return command.returncode, said

    def of(self, configuration: str, kind: str = "accuracy") -> RunFolder:
        experiment = read_experiment(self.store, "kept")
        assert experiment is not None
        (member,) = [
            each for each in experiment.members if (each.configuration, each.kind) == (configuration, kind)
        ]
        return RunFolder(self.store.runs_folder / member.folder)

    def pids(self, configuration: str) -> list[int | None]:
        return [attempt.record().pid for attempt in self.of(configuration).attempts()]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "kept")


def wait_until(true: Callable[[], object], seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def test_results_are_those_of_fresh_workers_and_timing_gets_one(sweep: Sweep, tmp_path: Path) -> None:
    sweep.write('{ kind = "layer_reuse", k = 2 }', TIMING)
    code, said = sweep.run()
    assert code == 0, said
    names = ("full", "second", "trim")
    (pid,) = {pid for name in names for pid in sweep.pids(name)}
    (timing,) = [run for run in sweep.store.runs() if "-timing-" in run.name]
    assert timing.attempts()[0].record().pid != pid
    assert list((sweep.store.root / "workers").iterdir()) == []
    fresh = Sweep(tmp_path / "fresh")
    fresh.write('{ kind = "layer_reuse", k = 2 }')
    for name in names:
        assert fresh.run("--config", name)[0] == 0
    assert len({pid for name in names for pid in fresh.pids(name)}) == 3
    for name in names:
        kept, own = (
            json.loads((each.of(name).folder / "result.json").read_text()) for each in (sweep, fresh)
        )
        for part in ("id", "identity", "value", "stderr", "rows", "metrics", "effect", "shared", "answers"):
            assert kept[part] == own[part], part
        for file in ("answers.jsonl", "samples.jsonl"):
            first, second = (each.of(name).attempts()[0].folder / file for each in (sweep, fresh))
            assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_after_a_failure_the_next_run_gets_a_fresh_worker(sweep: Sweep) -> None:
    sweep.write(OWN)
    sweep.policy("raise ZeroDivisionError")
    code, said = sweep.run()
    assert code == 1
    assert "ZeroDivisionError" in said
    assert sweep.pids("full") == sweep.pids("second")
    assert sweep.pids("trim") != sweep.pids("full")
    assert [state_of(sweep.of(name)).status for name in ("full", "second", "trim")] == [
        *("done", "failed", "done")
    ]


def test_a_run_is_cancelled_and_its_worker_goes_on(sweep: Sweep) -> None:
    sweep.write(OWN)
    sweep.policy("time.sleep(0.5 if os.environ.get('KEPT_SLOWLY') else 0)")
    os.environ["KEPT_SLOWLY"] = "yes"
    try:
        command = sweep.command()
    finally:
        del os.environ["KEPT_SLOWLY"]
    with command:
        wait_until((sweep.folder / "begun").exists)
        cancel = [sys.executable, "-m", "unmask", "cancel", "second", "--store", str(sweep.store.root)]
        told = subprocess.run(cancel, capture_output=True, text=True, check=True).stdout
        assert "1 run told to end; workers go on." in told
        said, _ = command.communicate(timeout=240)
    assert command.returncode == 1, said
    stop = sweep.of("second").attempts()[0].interruption()
    assert stop is not None
    assert stop.reason == "cancelled"
    assert state_of(sweep.of("second")).status == "interrupted"
    assert sweep.of("trim").result() is not None
    assert sweep.pids("full") == sweep.pids("second") == sweep.pids("trim")
    assert sweep.run()[0] == 0
    assert len(sweep.pids("second")) == 2


@pytest.mark.slow
def test_a_killed_worker_costs_its_run_and_no_other(sweep: Sweep) -> None:
    sweep.write(OWN)
    sweep.policy("os.kill(os.getpid(), 9)")
    code, said = sweep.run()
    assert code == 1, said
    assert sweep.pids("full") == sweep.pids("second") != sweep.pids("trim")
    assert state_of(sweep.of("second")).status == "interrupted"
    assert sweep.of("trim").result() is not None
