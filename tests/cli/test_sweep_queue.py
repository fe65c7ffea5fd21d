"""Runs that were submitted to SLURM, with client programs that fail, hang, or answer for some of the jobs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_cases import Run, error_line, lines_with
from planted import folder_of, plant, plant_stopped

from unmask.launch import queue_state
from unmask.store import Store
from unmask.store.experiments import AnnouncedJobs

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

    def answer_sbatch(self, job: int, then: str = ":") -> None:
        """Count submissions from now on, which all become this job; do something before it is told."""
        self._scripts.unlink(missing_ok=True)
        self.programs(sbatch=f'echo "$@" >> {self._scripts}; {then}; echo Submitted batch job {job}')

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
    assert "SLURM does not answer for 2 submitted runs (job 17)" in sentence
    assert "--assume-gone" in sentence
    assert cluster.submissions == 0
    assert folder_of(store, submitted, "k1_first").attempts() == []
    assert statuses(run) == {"k1_first": "unknown", "k2_first": "unknown"}
    assert lines_with(run("status"), "k1_first", "unknown", "SLURM does not answer for job 17_0")
    dry = run("run", submitted, *PICK, "--dry-run").stdout
    assert "(job 17)" in dry
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
    assert "1 submitted run (job 17)" in result.stdout
    assert "1 run submitted as job 99." in result.stdout


def test_what_squeue_does_not_list_has_ended(run: Run, submitted: Path, cluster: Cluster) -> None:
    cluster.programs(squeue="echo '17_0|RUNNING|None|n1|'")
    assert statuses(run) == {"k1_first": "running", "k2_first": "missing"}


def test_force_does_not_pass_over_an_unknown_state(
    run: Run, submitted: Path, store: Store, cluster: Cluster, workers: None
) -> None:
    cluster.programs(squeue="exit 1")
    refused = run("run", submitted, *PICK, "--force", "k1_first")
    assert "SLURM does not answer for 1 submitted run (job 17)" in error_line(refused)
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


@pytest.mark.parametrize("other", ["aa_other", "zz_other"], ids=["earlier name", "later name"])
@pytest.mark.parametrize(
    ("squeue", "status"),
    [
        ("echo '17_0|RUNNING|None|n1|'; echo '3|FAILED|NonZeroExitCode|n1|'", "running"),
        ("echo '17_0|PENDING|Priority||'; echo '3|CANCELLED|None|n1|'", "pending"),
        # It answers for one of the two.
        (
            "case \"$*\" in *17*) exit 1 ;; *) echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1 ;; esac",
            "unknown",
        ),
    ],
    ids=["running", "pending", "unknown"],
)
def test_a_run_that_two_experiments_submitted_counts_by_its_living_job(
    run: Run, submitted: Path, store: Store, cluster: Cluster, other: str, squeue: str, status: str
) -> None:
    run_id = folder_of(store, submitted, "k1_first").id
    AnnouncedJobs.announce(store, other, [run_id]).confirm(["3"])
    cluster.programs(sacct="case \"$*\" in *3*) echo '3|CANCELLED|None|n1|0:0' ;; esac", squeue=squeue)
    assert statuses(run)["k1_first"] == status


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
    assert "Until it answers, the canary waits." in " ".join(result.stdout.split())
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
    assert "SLURM does not answer for 2 submitted runs (job 17)" in refused.stderr
    assert cluster.submissions == 1


# Two who submit at once, and one who is killed while submitting.


def start_run(recipe: Path) -> "subprocess.Popen[str]":
    """`unmask run` in a process of its own."""
    words = [sys.executable, "-m", "unmask", "run", str(recipe), *PICK, "--on", "slurm"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_of_two_who_submit_at_once_the_second_finds_the_jobs_of_the_first(
    recipe: Path, store: Store, cluster: Cluster, tmp_path: Path
) -> None:
    queue = tmp_path / "queue"
    cluster.answer_sbatch(17, f"sleep 1; echo 'x' >> {queue}")
    cluster.programs(squeue=f"if [ -e {queue} ]; then {WAITING}; fi")
    both = [start_run(recipe) for _ in range(2)]
    printed = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], printed
    assert sorted("2 runs submitted as job 17." in text for text in printed) == [False, True]
    assert sorted("Nothing to do: 2 pending." in text for text in printed) == [False, True]
    assert cluster.submissions == 1


def test_a_run_that_a_job_may_work_on_is_not_deleted(
    run: Run, submitted: Path, store: Store, cluster: Cluster
) -> None:
    folder = folder_of(store, submitted, "k1_first")
    remove = ("rm", folder.id, "--yes")
    assert f"is pending; stop it with `unmask cancel {folder.id}` first" in error_line(run(*remove))
    cluster.programs(squeue="exit 1", sacct="exit 1")
    assert "SLURM does not answer for job 17_0 of" in error_line(run(*remove))
    assert folder.folder.exists()
    assert run(*remove, "--assume-gone").stdout == "1 run deleted.\n"
    assert not folder.folder.exists()


@pytest.fixture
def cut_off(recipe: Path, store: Store, cluster: Cluster, tmp_path: Path) -> Path:
    """The recipe with two runs in the queue, whose submitter was killed before it knew their job."""
    cluster.answer_sbatch(17, f"sed -n 's/^#SBATCH --job-name=//p' \"$1\" > {tmp_path}/name; kill -9 $PPID")
    cluster.programs(
        squeue=f'case "$*" in *--name*) echo "17|$(cat {tmp_path}/name)" ;; *) {WAITING} ;; esac'
    )
    killed = start_run(recipe)
    printed = killed.communicate(timeout=120)[0]
    assert killed.returncode == -signal.SIGKILL, printed
    assert cluster.submissions == 1
    cluster.answer_sbatch(99)
    return recipe


def test_a_job_whose_submitter_was_killed_is_found_by_its_name(
    run: Run, cut_off: Path, cluster: Cluster
) -> None:
    assert statuses(run) == {"k1_first": "pending", "k2_first": "pending"}
    assert "Nothing to do: 2 pending." in run("run", cut_off, *PICK, "--on", "slurm").stdout
    assert cluster.submissions == 0
    cluster.programs(scancel=f'echo "$@" > {cut_off.parent}/cancelled')
    assert run("cancel", "planted").stdout.startswith("2 jobs cancelled")
    assert (cut_off.parent / "cancelled").read_text().split() == ["--quiet", "17_0", "17_1"]


def test_a_job_without_an_id_is_unknown_while_the_queue_is_silent(
    run: Run, cut_off: Path, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.programs(squeue="exit 1")
    name = (tmp_path / "name").read_text().strip()
    assert statuses(run) == {"k1_first": "unknown", "k2_first": "unknown"}
    refused = run("run", cut_off, *PICK, "--on", "slurm")
    assert refused.exit_code == 1
    assert f"2 submitted runs (job {name})" in " ".join(refused.stdout.split())
    assert f"does not answer for the job named {name}" in error_line(run("cancel", "planted"))
    assert cluster.submissions == 0


def test_what_was_about_to_be_submitted_and_is_not_in_the_queue_is_submitted(
    run: Run, cut_off: Path, cluster: Cluster
) -> None:
    cluster.programs(squeue="exit 0")
    assert statuses(run) == {"k1_first": "missing", "k2_first": "missing"}
    assert "2 runs submitted as job 99." in run("run", cut_off, *PICK, "--on", "slurm").stdout


def test_a_refusal_of_sbatch_is_told_once(run: Run, recipe: Path, store: Store, cluster: Cluster) -> None:
    cluster.programs(sbatch="echo 'sbatch: error: invalid partition specified: gpux' >&2; exit 1", squeue="")
    refused = run("run", recipe, *PICK, "--on", "slurm")
    assert refused.exit_code == 2
    assert refused.stderr == "Error: sbatch refused: invalid partition specified: gpux.\n"
    assert statuses(run) == {"k1_first": "missing", "k2_first": "missing"}


# Jobs that end before their workers begin.


def plant_output(store: Store, job: str, text: str) -> None:
    """What a job has printed, where submitit leaves it."""
    file = store.root / "experiments" / "planted" / "slurm" / job / f"{job}_0_log.out"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


NO_MODULE = "/var/spool/job17/slurm_script: line 19: module: command not found\n"


def test_a_job_that_dies_before_its_worker_begins_says_why_and_is_not_repeated(
    run: Run, submitted: Path, store: Store, cluster: Cluster
) -> None:
    cluster.programs(squeue="echo '17_0|FAILED|NonZeroExitCode|n1|'; echo '17_1|PENDING|Priority||'")
    plant_output(store, "17_0", f"export MY_TOKEN=0123456789abc\n{NO_MODULE}")
    why = "job 17_0 ended (FAILED) before its worker began: /var/spool/job17/slurm_script: line 19: module:"
    assert lines_with(run("status"), "k1_first", "failed", "before its worker began")
    (experiment,) = json.loads(run("status", "--json").stdout)
    assert experiment["runs"][0]["reason"].startswith(why)
    again = run("run", submitted, *PICK, "--on", "slurm")
    assert again.exit_code == 1
    assert cluster.submissions == 0
    assert why in " ".join(again.stdout.split())
    assert "--retry-failed` tries again" in again.stdout
    shown = run("logs", folder_of(store, submitted, "k1_first").id).stdout
    assert "MY_TOKEN=(hidden)" in shown
    assert NO_MODULE in shown
    assert "has no log yet" in error_line(run("logs", folder_of(store, submitted, "k2_first").id))
    retried = run("run", submitted, *PICK, "--on", "slurm", "--retry-failed")
    assert "1 run submitted as job 99." in retried.stdout


def test_what_is_left_out_is_said_when_others_are_submitted(
    run: Run, submitted: Path, store: Store, cluster: Cluster
) -> None:
    cluster.programs(squeue="echo '17_0|FAILED|NonZeroExitCode|n1|'; echo '17_1|CANCELLED|None|n1|'")
    plant_output(store, "17_0", NO_MODULE)
    again = run("run", submitted, *PICK, "--on", "slurm")
    assert "1 run submitted as job 99." in again.stdout
    assert lines_with(again, "k1_first failed: job 17_0 ended (FAILED) before its worker began")
    assert again.exit_code == 1


@pytest.mark.parametrize(
    ("state", "printed", "status"),
    [
        ("FAILED", "", "failed"),
        ("TIMEOUT", "waiting for a licence\n", "failed"),
        ("COMPLETED", "", "failed"),
        ("CANCELLED", NO_MODULE, "missing"),
        ("NODE_FAIL", NO_MODULE, "missing"),
        (None, NO_MODULE, "failed"),
        (None, "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-18T20:00:00 ***\n", "missing"),
        (
            None,
            f"{NO_MODULE}slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT x DUE TO TIME LIMIT ***\n",
            "failed",
        ),
    ],
)
def test_ends_of_jobs_without_a_worker(
    run: Run, submitted: Path, store: Store, cluster: Cluster, state: str | None, printed: str, status: str
) -> None:
    """Also of jobs that the queue has forgotten."""
    cluster.programs(squeue=f"echo '17_0|{state}|x|n1|'" if state else "")
    plant_output(store, "17_0", printed)
    assert statuses(run) == {"k1_first": status, "k2_first": "missing"}


def test_work_since_the_job_counts_not_its_end(
    run: Run, submitted: Path, store: Store, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of this job, also one that was set aside, or a later one of any place."""
    cluster.programs(squeue="echo '17_0|FAILED|x|n1|'; echo '17_1|FAILED|x|n1|'")
    first, second = (folder_of(store, submitted, name) for name in ("k1_first", "k2_first"))
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    plant_stopped(first, "the worker's own words\n")
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name)
    plant_stopped(second)
    for job in ("17_0", "17_1"):
        plant_output(store, job, NO_MODULE)
    assert statuses(run) == {"k1_first": "interrupted", "k2_first": "failed"}
    assert run("logs", first.id).stdout == "the worker's own words\n"
    plant_stopped(second)
    newest = second.attempts()[-1].folder / "attempt.json"
    os.utime(newest, (newest.stat().st_mtime + 5,) * 2)
    first.set_aside()
    assert statuses(run) == {"k1_first": "missing", "k2_first": "interrupted"}


def test_a_canary_whose_jobs_die_says_why(run: Run, recipe: Path, store: Store, cluster: Cluster) -> None:
    cluster.programs(squeue="echo '17_0|FAILED|x|n1|'; echo '17_1|FAILED|x|n1|'")
    for job in ("17_0", "17_1"):
        plant_output(store, job, NO_MODULE)
        output = store.root / "experiments" / "planted" / "slurm" / job / f"{job}_0_log.out"
        os.utime(output, (output.stat().st_mtime + 60,) * 2)
    refused = run("run", recipe, *PICK, "--on", "slurm", "--canary", 2)
    assert refused.exit_code == 2
    assert "before its worker began" in refused.stderr
    assert "module: command not found" in refused.stderr


def named(recipe: Path, text: str) -> Path:
    """The recipe with more lines in its table of the model, or of resources, under the same lock."""
    file = recipe / "recipe.toml"
    file.write_text(
        file.read_text().replace('checkpoint = "embedded"\n', f'checkpoint = "embedded"\n{text}\n')
    )
    return recipe


GPUS = '[resources]\ngpus = 1\ngpu_type = "rtx_6000"'


def test_jobs_with_gpus_need_a_number_format(run: Run, recipe: Path, store: Store, cluster: Cluster) -> None:
    refused = run("run", named(recipe, GPUS), *PICK, "--on", "slurm")
    assert refused.exit_code == 2
    assert 'add to [model]: dtype = "float16", which suits rtx_6000.' in " ".join(error_line(refused).split())
    assert cluster.submissions == 0
    assert store.names() == []
    assert not (store.root / "experiments").exists()


def test_a_number_format_that_the_gpu_lacks_is_named(
    run: Run, recipe: Path, store: Store, cluster: Cluster
) -> None:
    said = run("run", named(recipe, f'dtype = "bfloat16"\n{GPUS}'), *PICK, "--on", "slurm")
    assert "2 runs submitted as job 17." in said.stdout
    assert "rtx_6000 has no bfloat16" in said.stdout
