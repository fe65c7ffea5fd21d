"""What SLURM says of jobs: sacct where it works, else the controller's memory, which forgets after some minutes.

Knows the client programs only, so that `unmask status` is quick. What a job has achieved is seen on disk, not here.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from unmask.errors import UnmaskError
from unmask.store.state import PENDING, RUNNING

Phase = Literal["pending", "running", "ended", "vanished", "unknown"]
SECONDS = 20.0
AT_ONCE = 1000
"""Ids in one call; a call takes whole arrays by one id."""
_ARRAY = re.compile(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]")


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of a job."""

    phase: Phase
    """`vanished`: SLURM answers but does not know the job; `unknown`: SLURM does not answer."""
    state: str
    """SLURM's word, such as TIMEOUT."""
    reason: str = ""
    """Why it waits or ended, in SLURM's words."""
    node: str = ""
    exit_code: str = ""
    """Exit code and signal, such as `1:0`."""


def job_states(job_ids: Iterable[str], seconds: float | None = None) -> dict[str, JobState]:
    """The state of every job; never raises, since status must work without a cluster.

    A client program that does not answer within `seconds` (SECONDS without it) has not answered.
    """
    seconds = SECONDS if seconds is None else seconds
    wanted = list(dict.fromkeys(job_ids))
    known: dict[str, JobState] = {}
    silent: set[str] = set()
    for ids in _portions(wanted):
        known.update(_ask_sacct(ids, seconds) or {})
        missing = [each for each in ids if any(_main(job) == each and job not in known for job in wanted)]
        if missing:
            answer = _ask_squeue(missing, seconds)
            known.update(answer or {})
            silent.update(missing if answer is None else ())
    # An array whose waiting tasks were all cancelled is one record without tasks.
    return {
        job: known.get(job) or known.get(_main(job)) or _not_found(_main(job) in silent) for job in wanted
    }


def jobs_named(names: Iterable[str], seconds: float | None = None) -> dict[str, str] | None:
    """The job or array in the queue that goes by each of these names; None where squeue does not answer."""
    command = ["squeue", "-h", "-t", "all", "-o", "%F|%j", "--name", ",".join(dict.fromkeys(names))]
    answer = _run(command, SECONDS if seconds is None else seconds)
    if answer is None or answer.returncode:
        return None
    lines = (line.strip().partition("|") for line in answer.stdout.splitlines())
    return {name: job for job, _, name in lines if job.isdecimal()}


def cancel(job_ids: Iterable[str], seconds: float = 60.0) -> None:
    """Cancel jobs; those that have ended are none of its business."""
    wanted = list(dict.fromkeys(job_ids))
    for start in range(0, len(wanted), AT_ONCE):
        answer = _run(["scancel", "--quiet", *wanted[start : start + AT_ONCE]], seconds)
        if answer is None:
            raise UnmaskError(
                "scancel is not here or does not answer; cancel on a login node of the cluster."
            )
        complaints = [line for line in answer.stderr.splitlines() if "Invalid job id" not in line]
        if answer.returncode and complaints:
            reason = "; ".join(complaints).removeprefix("scancel: error: ").rstrip(".")
            raise UnmaskError(f"scancel refused: {reason}.")


def _ask_sacct(ids: Sequence[str], seconds: float) -> dict[str, JobState] | None:
    fields = "JobID,State,Reason,NodeList,ExitCode"
    return _states(_run(["sacct", "-X", "-n", "-P", "-o", fields, "-j", ",".join(ids)], seconds))


def _ask_squeue(ids: Sequence[str], seconds: float) -> dict[str, JobState] | None:
    answer = _run(["squeue", "-r", "-h", "-t", "all", "-o", "%i|%T|%r|%N|", "-j", ",".join(ids)], seconds)
    if answer is None or "Invalid job id" not in answer.stderr:
        return _states(answer)
    if len(ids) == 1:
        return {}
    # One id that is no longer known says nothing of the others.
    states: dict[str, JobState] = {}
    for each in ids:
        state = _ask_squeue([each], seconds)
        if state is None:
            return None
        states.update(state)
    return states


def _states(answer: subprocess.CompletedProcess[str] | None) -> dict[str, JobState] | None:
    return read_states(answer.stdout) if answer is not None and answer.returncode == 0 else None


def read_states(table: str) -> dict[str, JobState]:
    """States from lines of `id|state|reason|nodes|exit code`, arrays that wait as a whole taken apart."""
    states: dict[str, JobState] = {}
    for line in table.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5 or not fields[1]:
            continue
        words = fields[1].rstrip("+").split()  # "CANCELLED by 1000"
        reason, node, code = ("" if each in ("None", "None assigned") else each for each in fields[2:])
        state = JobState(_phase(words[0]), words[0], reason, node, code)
        states.update(dict.fromkeys(_tasks(fields[0]), state))
    return states


def _tasks(job_id: str) -> Iterator[str]:
    array = _ARRAY.fullmatch(job_id)
    if array is None:
        yield job_id
        return
    for part in array[2].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        for index in range(int(first), int(last or first) + 1, int(step or 1)):
            yield f"{array[1]}_{index}"


def _phase(state: str) -> Phase:
    return "pending" if state in PENDING else "running" if state in RUNNING else "ended"


def _not_found(silent: bool) -> JobState:
    return JobState("unknown", "UNKNOWN") if silent else JobState("vanished", "VANISHED")


def _main(job_id: str) -> str:
    return job_id.partition("_")[0]


def _portions(job_ids: Sequence[str]) -> Iterator[list[str]]:
    arrays = list(dict.fromkeys(map(_main, job_ids)))
    for start in range(0, len(arrays), AT_ONCE):
        yield arrays[start : start + AT_ONCE]


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """The answer of a client program, or None if it is missing or silent."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))
    }
    environment["SLURM_BITSTR_LEN"] = "0"  # or long lists of array tasks are cut short
    pipe = subprocess.PIPE
    try:
        program = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )
    except OSError:
        return None
    with program:
        try:
            output, errors = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Where the program is a script, what it started would keep the pipes open.
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, program.returncode, output, errors)
