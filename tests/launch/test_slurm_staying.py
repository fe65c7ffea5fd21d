"""Jobs of a real SLURM that take several runs: whose turn it is, and what a job leaves when it ends."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import signal_job, submit_all, wait_for_end
from light_jobs import wait_until
from slurm_lab import SlurmLab
from staying_jobs import staying_jobs, taken

from unmask.store import RunFolder, Store
from unmask.store.experiments import read_experiment
from unmask.store.stopping import stopped
from unmask.store.twins import twin_of

pytestmark = pytest.mark.xdist_group("slurm")


def test_one_job_takes_the_runs_of_those_that_wait(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, "work", "work", "unfit", "work", group="one")
    alone = staying_jobs(tmp_path, "work", group="two")
    submitted = submit_all([*jobs, *alone], tmp_path / "slurm", parallel=1)
    states = wait_for_end(submitted)
    assert {state.state for state in states.values()} == {"COMPLETED"}
    assert taken(jobs) == [0, 0, 1, 1]
    assert taken([*jobs, *alone]) == [0, 0, 1, 1, 2]


def test_jobs_at_the_same_time_do_every_run_once(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, *["work"] * 9)
    states = wait_for_end(submit_all(jobs, tmp_path / "slurm"))
    assert {state.state for state in states.values()} == {"COMPLETED"}
    assert all(job.done for job in jobs)


def test_a_job_whose_list_is_gone_does_its_own_run(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, "work", "work")
    submitted = submit_all(jobs, tmp_path / "slurm", sbatch={"hold": True})
    (tmp_path / "slurm" / "light-0.json").unlink()
    slurm.ask("scontrol", "release", submitted[0].job_id.split("_")[0])
    assert {state.state for state in wait_for_end(submitted).values()} == {"COMPLETED"}
    assert taken(jobs) == [0, 1]


# Real workers.

RECIPE = """
name = "kept"
hypothesis = "A job that takes several runs loses none."
[model]
checkpoint = "embedded"
dtype = "float32"
[decode]
max_new_tokens = 64
[evaluation]
batch_size = 1
[[tasks]]
name = "unmask_arith"
limit = 3
[[configurations]]
name = "full"
[[configurations]]
name = "second"
policy = { kind = "custom", target = "slurm_policy:Policy" }
[[configurations]]
name = "trim"
policy = { kind = "trim" }
[resources]
cpus = 1
memory_gb = 1
minutes = MINUTES
parallel = 1
"""
POLICY = """\
import os
import time
from pathlib import Path


class Policy:
    needs_features = False

    def plan(self, view):
        from unmask.engine.policy import Full

        if Path("FOLDER", "slowly").exists() and self._answered():
            time.sleep(SECONDS)
        return Full().plan(view)

    def _answered(self):
        # From its first answer on the run is slow, so that there is time between that and the last one.
        files = Path("FOLDER").glob("store/runs/*custom*/attempts/*/answers.jsonl")
        return any(file.stat().st_size for file in files)
"""
NAMES = ("full", "second", "trim")


class Sweep:
    """A sweep whose second run is slow as long as a file says so; one job at a time takes its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "store")
        self.minutes = 10
        self.jobs: list[str] = []

    def command(self, *words: str, code: int = 0) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "unmask", *words, "--store", str(self.store.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def submit(self, slow_seconds: float = 2.0, more: str = "") -> str:
        text = RECIPE.replace("[resources]", f"{more}[resources]").replace("MINUTES", str(self.minutes))
        (self.folder / "recipe.toml").write_text(text)
        policy = POLICY.replace("SECONDS", str(slow_seconds)).replace("FOLDER", str(self.folder))
        (self.folder / "slurm_policy.py").write_text(policy)
        said = self.command("run", str(self.folder / "recipe.toml"), "--on", "slurm")
        found = re.search(r"runs? submitted as job (\d+)", said)
        assert found is not None, said
        self.jobs.append(found[1])
        return found[1]

    def of(self, name: str) -> RunFolder:
        experiment = read_experiment(self.store, "kept")
        assert experiment is not None
        (member,) = [each for each in experiment.members if each.configuration == name]
        return RunFolder(self.store.runs_folder / member.folder)

    def statuses(self) -> dict[str, str]:
        (experiment,) = json.loads(self.command("status", "--json"))
        return {run["configuration"]: run["status"] for run in experiment["runs"]}

    def jobs_of(self, name: str) -> list[str | None]:
        return [attempt.record().job for attempt in self.of(name).attempts()]

    def queue(self) -> str:
        """What is left of this sweep's jobs; a job put back waits for minutes in other sweeps' way."""
        command = ["squeue", "-h", "-j", ",".join(self.jobs)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def wait_for_answers(self, name: str) -> None:
        wait_until(lambda: list(self.of(name).answers()), f"an answer of {name}", 180)

    def wait_for_results(self) -> None:
        wait_until(lambda: all(self.of(name).result() for name in NAMES), "results", 300)

    def check(self) -> None:
        """Every answer stands once, and samples are whole."""
        for name in NAMES:
            run = self.of(name)
            keys = [answer.key for attempt in run.attempts() for answer in attempt.answers()]
            result: Any = run.result()
            assert len(keys) == len(set(keys)) == result.rows == 3, name
            assert len(list(run.attempt(result.attempt).samples())) == 3


@pytest.fixture
def sweep(tmp_path: Path, slurm: SlurmLab) -> Sweep:
    (tmp_path / "slowly").touch()
    return Sweep(tmp_path)


@pytest.mark.slow
def test_a_job_takes_all_runs_and_one_of_them_is_cancelled(sweep: Sweep) -> None:
    job = sweep.submit(slow_seconds=2.0)
    sweep.wait_for_answers("second")
    assert sweep.statuses() == {"full": "done", "second": "running", "trim": "pending"}
    assert "1 run told to end; workers go on." in sweep.command("cancel", "second")
    wait_until(lambda: sweep.of("trim").result(), "the third run", 180)
    assert {*sweep.jobs_of("full"), *sweep.jobs_of("second"), *sweep.jobs_of("trim")} == {f"{job}_0"}
    wait_until(lambda: sweep.statuses()["second"] == "interrupted", "the end", 60)
    wait_until(lambda: not sweep.queue(), "the empty queue", 60)
    assert len(sweep.jobs_of("second")) == 1, "its own job leaves a run alone that was cancelled"
    (sweep.folder / "slowly").unlink()
    sweep.submit(slow_seconds=2.0)
    sweep.wait_for_results()
    sweep.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["USR2", "TERM"], ids=["time limit", "preemption"])
def test_a_job_that_is_warned_in_its_second_run_goes_on_with_it(sweep: Sweep, name: str) -> None:
    job = sweep.submit()
    sweep.wait_for_answers("second")
    signal_job(f"{job}_0", name)
    wait_until(lambda: len(sweep.jobs_of("second")) == 2, "the second attempt", 180)
    stop = sweep.of("second").attempts()[0].interruption()
    assert stop is not None
    assert stop.reason == "interrupted"
    (sweep.folder / "slowly").unlink()
    sweep.wait_for_results()
    sweep.check()
    assert len(sweep.jobs_of("full")) == 1


@pytest.mark.slow
def test_a_job_that_is_cancelled_in_its_second_run_loses_nothing(sweep: Sweep) -> None:
    sweep.submit()
    sweep.wait_for_answers("second")
    sweep.command("cancel", "kept")
    wait_until(lambda: not sweep.queue(), "the empty queue", 60)
    assert sweep.statuses() == {"full": "done", "second": "interrupted", "trim": "missing"}
    (sweep.folder / "slowly").unlink()
    sweep.submit()
    sweep.wait_for_results()
    sweep.check()


@pytest.mark.slow
def test_a_job_that_is_killed_in_its_second_run_leaves_it_to_the_runs_own_job(sweep: Sweep) -> None:
    job = sweep.submit()
    sweep.wait_for_answers("second")
    pid = sweep.of("second").attempts()[0].record().pid
    assert pid is not None
    (sweep.folder / "slowly").unlink()
    os.kill(pid, 9)
    sweep.wait_for_results()
    sweep.check()
    assert sweep.jobs_of("second")[0] == f"{job}_0"
    assert sweep.jobs_of("second")[1] == f"{job}_1"


@pytest.mark.slow
def test_a_real_time_limit_in_a_job_that_takes_several_runs(sweep: Sweep) -> None:
    sweep.minutes = 1
    sweep.submit(slow_seconds=1.5)
    wait_until(lambda: len(sweep.jobs_of("second")) == 2, "the limit", 300)
    (sweep.folder / "slowly").unlink()
    sweep.wait_for_results()
    sweep.check()


AGAIN = """\
[[configurations]]
name = "again"
policy = { kind = "layer_reuse", k = 1 }
"""


@pytest.mark.slow
def test_a_twin_has_a_job_of_its_own_and_ends_when_it_is_answered(sweep: Sweep) -> None:
    """It lies in the folder of the run that stands for it, and goes on from its answers where its job was cancelled."""
    (sweep.folder / "slowly").unlink()
    sweep.submit(more=AGAIN)
    (twin,) = sweep.of("full").twins()
    wait_until(lambda: not sweep.queue(), "the empty queue", 300)
    sweep.wait_for_results()
    sweep.check()
    shown = twin_of(sweep.of("full"))
    assert shown is not None
    assert (shown.configuration, shown.equal, shown.other) == ("again", 3, 0)
    assert sweep.statuses() == dict.fromkeys((*NAMES, "again"), "done")
    again = sweep.command("run", str(sweep.folder / "recipe.toml"), "--on", "slurm")
    assert "submitted" not in again
    (twin.attempts()[-1].folder / "stopped.json").unlink()
    sweep.submit(more=AGAIN)
    wait_until(lambda: [attempt for attempt in twin.attempts() if stopped(attempt)], "the twin", 180)
    wait_until(lambda: not sweep.queue(), "the empty queue", 60)
    assert len(twin.answers()) == len([key for each in twin.attempts() for key in each.answers()]) == 3
    assert len(twin.attempts()) == 2
    assert len(sweep.of("full").attempts()) == 1
