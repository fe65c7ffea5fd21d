"""Runs that were submitted to SLURM, with client programs that fail, hang, or answer for some of the jobs."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_cases import Run, error_line, lines_with
from planted import folder_of, plant

from unmask.launch import queue_state
from unmask.store import Store
from unmask.store.experiments import append_jobs

SILENCE = {"fail": "exit 1", "hang": "sleep 60; exit 1"}
WAITING = "echo '17_0|PENDING|Priority||'; echo '17_1|PENDING|Priority||'"
PICK = ("--config", "k1_first", "--config", "k2_first", "--task", "unmask_arith")


class Cluster:
    """Client programs that are shell scripts; sbatch notes what it is given."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._scripts = folder, folder / "submitted"
        self.programs(
            sacct="exit 1",
            squeue="exit 1",
            scontrol="exit 1",
        )
        self.answer_sbatch(17)

    def programs(self, **scripts: str) -> None:
        for name, script in scripts.items():
            (self._folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (self._folder / name).chmod(0o700)

    def answer_sbatch(self, job: int) -> None:
        """Count submissions from now on, which all become this job."""
        self._scripts.unlink(missing_ok=True)
        self.programs(sbatch=f'echo "$@" >> {self._scripts}; echo Submitted batch job {job}')

    @property
    def submissions(self) -> int:
        return len(self._scripts.read_text().splitlines()) if self._scripts.exists() else 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(queue_state, "SECONDS", 0.5)
    return Cluster(folder)


@pytest.fixture
def submitted(store: Store, recipe: Path, run: Run, cluster: Cluster) -> Path:
    """The recipe with two runs that were submitted as job 17."""
    cluster.programs(squeue=WAITING)
    assert "2 runs submitted as job 17." in run("run", recipe, *PICK, "--on", "slurm").stdout
    assert cluster.submissions == 1
    cluster.answer_sbatch(99)
    return recipe


def statuses(run: Run) -> dict[str, str]:
    (experiment,) = json.loads(run("status", "planted", "--json").stdout)
    return {each["configuration"]: each["status"] for each in experiment["runs"]}


@pytest.mark.parametrize("place", ["slurm", "local"])
@pytest.mark.parametrize("silence", SILENCE)
def test_a_run_of_an_unknown_state_is_left_alone(
    run: Run, submitted: Path, store: Store, cluster: Cluster, workers: None, silence: str, place: str
) -> None:
    cluster.programs(sacct=SILENCE[silence], squeue=SILENCE[silence])
    result = run("run", submitted, *PICK, "--on", place)
    assert result.exit_code == 1
    sentence = " ".join(result.stdout.split())
    assert "SLURM does not answer for 2 submitted runs (jobs 17)" in sentence
    assert "--assume-gone" in sentence
    assert cluster.submissions == 0
    assert folder_of(store, submitted, "k1_first").attempts() == []
    assert statuses(run) == {"k1_first": "unknown", "k2_first": "unknown"}
    assert lines_with(run("status"), "k1_first", "unknown", "SLURM does not answer for job 17_0")
    dry = run("run", submitted, *PICK, "--dry-run").stdout
    assert "(jobs 17)" in dry
    assert "0 of 2 runs would be executed." in dry


def test_jobs_that_are_assumed_gone_are_submitted_again(
    run: Run, submitted: Path, cluster: Cluster, workers: None
) -> None:
    cluster.programs(sacct="exit 1", squeue="exit 1")
    result = run("run", submitted, *PICK, "--on", "slurm", "--assume-gone")
    assert "2 runs submitted as job 99." in result.stdout
    assert result.exit_code == 0
    assert cluster.submissions == 1


def test_of_a_partial_answer_the_rest_is_unknown(run: Run, submitted: Path, cluster: Cluster) -> None:
    cluster.programs(sacct="echo '17_0|CANCELLED by 1000|None|n1|0:15'", squeue="exit 1")
    assert statuses(run) == {"k1_first": "missing", "k2_first": "unknown"}
    result = run("run", submitted, *PICK, "--on", "slurm")
    assert result.exit_code == 1
    assert "1 submitted runs (jobs 17)" in result.stdout
    assert "1 runs submitted as job 99." in result.stdout


def test_what_squeue_does_not_list_has_ended(run: Run, submitted: Path, cluster: Cluster) -> None:
    cluster.programs(squeue="echo '17_0|RUNNING|None|n1|'")
    assert statuses(run) == {"k1_first": "running", "k2_first": "missing"}


def test_force_does_not_pass_over_an_unknown_state(
    run: Run, submitted: Path, store: Store, cluster: Cluster, workers: None
) -> None:
    cluster.programs(squeue="exit 1")
    refused = run("run", submitted, *PICK, "--force", "k1_first")
    assert "SLURM does not answer for 1 submitted runs (jobs 17)" in error_line(refused)
    assert run("run", submitted, *PICK, "--force", "k1_first", "--assume-gone").exit_code == 0
    assert len(folder_of(store, submitted, "k1_first").attempts()) == 1


def test_a_failure_on_record_needs_no_answer_of_the_queue(
    run: Run, submitted: Path, store: Store, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    for name in ("k1_first", "k2_first"):
        folder_of(store, submitted, name).new_attempt().fail("The disk is full.")
    cluster.programs(squeue="exit 1")
    assert statuses(run) == {"k1_first": "failed", "k2_first": "unknown"}


def test_a_run_that_two_experiments_submitted_counts_by_its_living_job(
    run: Run, submitted: Path, store: Store, cluster: Cluster
) -> None:
    append_jobs(store, "zz_other", [{"job": "3", "run": folder_of(store, submitted, "k1_first").id}])
    cluster.programs(squeue="echo '17_0|RUNNING|None|n1|'; echo '3|FAILED|NonZeroExitCode|n1|'")
    assert statuses(run)["k1_first"] == "running"


@pytest.fixture
def at_every_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do these things, one at each pause of a wait; a wait that goes on after them is an error."""

    def arrange(*actions: Callable[[], object]) -> None:
        rest = iter(actions)
        # The clock of the waiting module alone: starting programs sleeps too.
        clock = SimpleNamespace(sleep=lambda _seconds: next(rest)())
        monkeypatch.setattr("unmask.lab.executing.time", clock)

    return arrange


def test_a_canary_is_waited_for_while_the_queue_is_silent(
    run: Run, recipe: Path, store: Store, cluster: Cluster, at_every_pause: Callable[..., None]
) -> None:
    at_every_pause(lambda: None, lambda: plant(store, recipe, "k1_first", "k2_first", limit=2))
    result = run("run", recipe, *PICK, "--on", "slurm", "--canary", 2)
    assert "Until it answers, they are waited for." in " ".join(result.stdout.split())
    assert "The canary is sound." in result.stdout
    assert cluster.submissions == 2


def test_a_canary_whose_jobs_are_unknown_is_not_submitted_again(
    run: Run, recipe: Path, store: Store, cluster: Cluster, at_every_pause: Callable[..., None]
) -> None:
    canary = ("run", recipe, *PICK, "--on", "slurm", "--canary", 2)
    at_every_pause(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run(*canary).exit_code == 130
    assert cluster.submissions == 1
    refused = run(*canary)
    assert refused.exit_code == 2
    assert "SLURM does not answer for 2 submitted runs (jobs 17)" in refused.stderr
    assert cluster.submissions == 1
