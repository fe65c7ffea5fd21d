"""What became of a run: computed from its files each time, never written down.

Knows the files of a run and what a scheduler said of it, as the caller tells it. A process on this machine is
looked up; one elsewhere counts as living while its heartbeat is young. Of a worker that takes several runs only the
one counts that its file names.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from unmask.errors import UnmaskError
from unmask.store.attempt import Attempt
from unmask.store.index import Listing, listing, read_record
from unmask.store.process import lives
from unmask.store.run_folder import RunFolder
from unmask.store.stopping import stopped
from unmask.store.store import Store

Status = Literal[
    "done", "retracted", "running", "pending", "interrupted", "failed", "stopped", "missing", "unknown"
]

HEARTBEAT_SECONDS = 120.0
RUNNING = {"RUNNING", "COMPLETING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED", "SUSPENDED"}
PENDING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
}
UNKNOWN = "UNKNOWN"
"""The word for a job on which the scheduler did not answer."""
SILENT = {"", UNKNOWN}
NO_RESULT = "stopped without a result; `unmask run` goes on from there"
CANCELLED = "cancelled; `unmask run` goes on from there"


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The job of a run, and what the scheduler says of it."""

    id: str
    word: str
    """Such as RUNNING or PENDING; empty where the scheduler answers but no longer knows the job."""
    death: str | None = None
    """Why it ended before its worker began, if it did."""


Jobs = Mapping[str, SubmittedJob]
"""The job of every run that was submitted, by the run's id."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands."""

    status: Status
    reason: str | None = None
    """Why it failed, was retracted, or is not known."""
    attempt: str | None = None
    """Number of the newest attempt."""
    host: str | None = None
    done: int | None = None
    total: int | None = None
    """Answers of the newest attempt, as its file `progress` says."""
    job: str | None = None
    """The job that the scheduler did not answer for."""


def states(
    store: Store, jobs: Jobs | None = None, now: float | None = None, known: Listing | None = None
) -> Iterator[tuple[str, State]]:
    """Name and state of every run; results are looked up in the index, or in what was read of it before."""
    runs = known or listing(store)
    for name in runs.names:
        record = runs.records.get(name)
        if record is not None:
            yield name, _finished(record.retraction, record.attempt, record.host)
        elif name in runs.damaged:
            yield name, State("failed", runs.damaged[name])
        else:
            yield name, _unfinished(RunFolder(store.runs_folder / name), jobs or {}, now)


def state_of(run: RunFolder, jobs: Jobs | None = None, now: float | None = None) -> State:
    """The state of one run, from its files."""
    if not (run.folder / "result.json").exists():
        return _unfinished(run, jobs or {}, now)
    try:
        record = read_record(run)
    except UnmaskError as error:
        return State("failed", str(error))
    return _finished(record.retraction, record.attempt, record.host)


def _finished(retraction: str | None, attempt: str | None, host: str | None) -> State:
    return State("done" if retraction is None else "retracted", retraction, attempt, host)


def _unfinished(run: RunFolder, jobs: Jobs, now: float | None) -> State:
    attempts = run.attempts()
    job = jobs.get(run.id)
    word = "" if job is None else job.word.split(" ")[0].rstrip("+").upper()
    if not attempts:
        if job is not None and word == UNKNOWN:
            return _unknown(job)
        if job is not None and job.death:
            return State("failed", job.death)
        return State("running" if word in RUNNING else "pending" if word in PENDING else "missing")
    for attempt in reversed(attempts):
        if not attempt.is_over() and _is_alive(attempt, word, now):
            return _with_attempt("running", None, attempt)
    newest = attempts[-1]
    end = stopped(newest)
    # The job of an attempt may outlive it, or a later job wait to go on from there.
    if end is not None and (word not in RUNNING | PENDING or (job and newest.record().job == job.id)):
        return _with_attempt("stopped", f"{end.rows} of {end.of} rows: {end.reason}", newest)
    if job is not None and word == UNKNOWN:
        return _unknown(job, newest)
    if job is not None and job.death:
        return _with_attempt("failed", job.death, newest)
    failure = newest.failure()
    if word in RUNNING or word in PENDING:
        return _with_attempt("running" if word in RUNNING else "pending", None, newest)
    if failure is not None:
        return _with_attempt("failed", failure.reason, newest)
    interruption = newest.interruption()
    reason = CANCELLED if interruption is not None and interruption.reason == "cancelled" else NO_RESULT
    return _with_attempt("interrupted", reason if word in SILENT else f"{word}: {reason}", newest)


def holder(run: RunFolder, before: Attempt, now: float | None = None) -> Attempt | None:
    """The attempt of another worker that is at this run and began earlier; it goes on, and the later one withdraws.

    An earlier start of the same SLURM job is over, whatever its heartbeat says.
    """
    job = before.record().job
    for attempt in run.attempts():
        if int(attempt.number) >= int(before.number) or attempt.is_over():
            continue
        if not _is_of(job, attempt) and _is_alive(attempt, "", now):
            return attempt
    return None


def may_be_taken(run: RunFolder, since: float, job: str | None, own: bool) -> bool:
    """Whether a worker of a SLURM job may begin a run that was submitted at this moment, for itself or for another job.

    What has failed, has stopped or was cancelled since then stays as it is. A run whose worker was killed is for
    its own job, or for the one that has lost it: it might kill every worker of the array.
    """
    attempts = run.attempts()
    if (run.folder / "result.json").exists():
        return False
    for attempt in attempts:
        if not attempt.is_over() and not _is_of(job, attempt) and _is_alive(attempt, "", None):
            return False
    if not attempts:
        return True
    newest, interruption = attempts[-1], attempts[-1].interruption()
    if (end := newest.failure() or stopped(newest)) is not None:
        return not _is_later(end.time, since)
    if interruption is not None:
        return interruption.reason != "cancelled" or not _is_later(interruption.time, since)
    return own or _is_of(job, newest) or not _is_later(newest.record().started, since)


def _is_of(job: str | None, attempt: Attempt) -> bool:
    """Whether an attempt was an earlier start of this job."""
    return job is not None and attempt.record().job == job


def _is_later(moment: str | None, since: float) -> bool:
    """Whether something was written down after a moment; what has no time counts as later."""
    try:
        return datetime.fromisoformat(moment or "").timestamp() > int(since)
    except ValueError:
        return True


def _is_alive(attempt: Attempt, word: str, now: float | None) -> bool:
    record = attempt.record()
    seen = lives(record)
    if seen is not None:
        return seen
    if word not in RUNNING | SILENT and record.slurm.get("job"):
        return False
    beat = attempt.last_beat()
    # Clocks of two machines differ both ways, and one may have been set back.
    return beat is not None and abs((time.time() if now is None else now) - beat) < HEARTBEAT_SECONDS


def _unknown(job: SubmittedJob, attempt: Attempt | None = None) -> State:
    reason = f"SLURM does not answer for job {job.id}, which may wait, run or have ended"
    state = State("unknown", reason) if attempt is None else _with_attempt("unknown", reason, attempt)
    return replace(state, job=job.id)


def _with_attempt(status: Status, reason: str | None, attempt: Attempt) -> State:
    done, total = attempt.reached() or (None, None)
    return State(status, reason, attempt.number, attempt.record().host, done, total)
