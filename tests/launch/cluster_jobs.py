"""Submitting light jobs to the SLURM under test and waiting for what becomes of them."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from light_jobs import wait_until

from unmask.launch import JobState, Submitted, WorkerCommand, job_states, submit

SMALL = {"gpus": 1, "gpu_type": "rtx_6000", "cpus": 1, "memory_gb": 1, "minutes": 5}


def submit_all(jobs: list[WorkerCommand], folder: Path, **resources: Any) -> list[Submitted]:
    chunks = list(submit(jobs, folder, {**SMALL, **resources}, lambda _commands: "light"))
    return [submitted for chunk in chunks for submitted in chunk]


def ids(submitted: list[Submitted]) -> list[str]:
    return [each.job_id for each in submitted]


def wait_for_end(submitted: list[Submitted], seconds: float = 90.0) -> dict[str, JobState]:
    """States after the queue has let go of all of them."""
    found: dict[str, JobState] = {}

    def over() -> bool:
        found.update(job_states(ids(submitted)))
        return all(state.phase == "ended" for state in found.values())

    try:
        wait_until(over, "the jobs to end", seconds)
    except AssertionError as error:
        queue = subprocess.run(["scontrol", "show", "job"], capture_output=True, text=True, check=False)
        raise AssertionError(f"{error}: {found}\n{queue.stdout}") from None
    return found


def signal_job(job_id: str, name: str) -> None:
    """What SLURM sends to the steps of a job before its time limit (USR2) or before preemption (TERM).

    A job that obeys at once is in transition when scancel asks for its state, and scancel then tries for minutes.
    """
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(["scancel", f"--signal={name}", job_id], check=False, timeout=8)


def written(folder: Path) -> bytes:
    """The bytes of all files below a folder."""
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
