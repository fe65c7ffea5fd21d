"""What a SLURM job does: start the worker, pass on the queue's wish that it stop, go back into the queue.

Runs on the compute node, called by submitit. Only the command and some paths are pickled: a worker resumes from what it
has written. Knows signals and states of its own job, nothing of models or devices: those are chosen in the worker.

A worker that is through with the job's own run takes over runs of the same group that wait for jobs of their own, as
long as one like the longest so far fits into the job's time. Those jobs find them under way, or done, and take others.

The time limit's warning (USR2) is handled by submitit, which calls `checkpoint` and requeues. SIGTERM is a preemption
if the job is still said to be running, and is then treated in the same way; otherwise the job was cancelled.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import FrameType

import msgspec
import submitit
from submitit.helpers import Checkpointable, DelayedSubmission

from unmask.errors import UnmaskError
from unmask.launch.dialogue import UNFIT, StarterEnd
from unmask.launch.local import RESULT
from unmask.launch.processes import WorkerProcess, has_ended, start_worker, wait_for
from unmask.store.files import read_struct
from unmask.store.process import job_of, slurm_ids
from unmask.store.run_folder import RunFolder
from unmask.store.state import may_be_taken

GRACE = 10.0
"""Seconds that a worker has to end when told to."""
PAUSE = 0.2
TAIL_BYTES = 8192
WARNING: signal.Signals = getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}")


class Chore(msgspec.Struct, frozen=True):
    """A run and the command that a worker is started with for it; one of a group's file."""

    folder: str
    argv: tuple[str, ...]
    log: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """What the job of one run may do besides."""

    file: str
    """The list of all runs of its group (`Chore`)."""
    submitted: float
    """When they were submitted."""
    seconds: float
    """How long the job has before it is warned."""


class Task(Checkpointable):
    """A worker's command as something submitit can call."""

    def __init__(
        self, argv: tuple[str, ...], result: Path, log_file: Path, requeue: bool, group: Group | None = None
    ) -> None:
        self._argv, self._result, self._log_file = argv, result, log_file
        self._requeue, self._group = requeue, group
        self._worker: WorkerProcess | None = None

    def __call__(self) -> None:
        """Run the worker unless the result is there; its exit code becomes the job's."""
        own = Chore(str(self._result.parent), self._argv, str(self._log_file))
        runs = _Turns(own, self._group)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        chore = runs.next()
        while chore is not None:
            chore = self._work(chore, runs)

    def _work(self, chore: Chore, runs: "_Turns") -> Chore | None:
        """Start a worker, and give it one run after the other; what needs a fresh worker, or None at the end."""
        log = Path(chore.log)
        printed = log.stat().st_size if log.exists() else 0
        talk = StarterEnd() if self._group is not None else None
        # The same process group as this process: SLURM may track jobs by it.
        worker = start_worker(chore.argv, log, own_session=False, ignore=[WARNING], talk=talk)
        self._worker = worker
        rest: Chore | None = None
        has_gone = False
        while not has_gone:
            has_gone = has_ended(worker)
            word = talk.word() if talk is not None else None
            if word is None:
                time.sleep(PAUSE)
            elif word == UNFIT:
                rest = chore
            elif talk is not None and (after := runs.next()) is not None and talk.give(Path(after.folder)):
                chore = after
            elif talk is not None:
                talk.release()
        code = worker.wait()
        if code:
            _show_end(log, printed)
            sys.exit(code if code > 0 else 128 - code)
        return rest

    def checkpoint(self) -> DelayedSubmission | None:  # type: ignore[override]
        """Stop the worker; the same command again, or None where it may not be requeued."""
        self._stop()
        if not self._requeue:
            return None
        return DelayedSubmission(Task(self._argv, self._result, self._log_file, self._requeue, self._group))

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self._stop()
        if is_running_still():
            signal.raise_signal(WARNING)
        sys.exit(128 + signal.SIGTERM)

    def _stop(self) -> None:
        worker = self._worker
        if worker is None:
            return
        if not has_ended(worker):
            worker.terminate()
        if not wait_for(lambda: has_ended(worker), GRACE):
            worker.kill()


class _Turns:
    """Which run comes next: the job's own, then those behind it in its group, and each once."""

    def __init__(self, own: Chore, group: Group | None) -> None:
        self._group, self._own = group, own
        chores = [own] if group is None else read_group(Path(group.file)) or [own]
        place = next((place for place, each in enumerate(chores) if each.folder == own.folder), 0)
        self._waiting = deque([*chores[place:], *chores[:place]])
        self._begun = self._latest = time.monotonic()
        self._longest = 0.0

    def next(self) -> Chore | None:
        """The next run that nobody is at, if there is time for it."""
        now = time.monotonic()
        self._longest, self._latest = max(self._longest, now - self._latest), now
        while self._waiting:
            chore = self._waiting.popleft()
            if self._group is None:
                return None if Path(chore.folder, RESULT).exists() else chore
            is_own = chore.folder == self._own.folder
            if not is_own and now - self._begun + self._longest > self._group.seconds:
                return None
            if may_be_taken(
                RunFolder(Path(chore.folder)), self._group.submitted, job_of(slurm_ids()), is_own
            ):
                return chore
        return None


def read_group(file: Path) -> list[Chore]:
    """The runs of a group; none where the file cannot be read, so that every job does its own."""
    try:
        return read_struct(file, list[Chore], "") or []
    except UnmaskError:
        return []


def _show_end(log_file: Path, begin: int) -> None:
    """Print the end of what a worker has printed, which stands nowhere else if it died before it began."""
    with log_file.open("rb") as log:
        log.seek(max(begin, log_file.stat().st_size - TAIL_BYTES))
        print(log.read().decode(errors="replace"), flush=True)


def is_running_still() -> bool:
    """Whether the queue takes this job for running: it was preempted, not cancelled."""
    command = ["scontrol", "--oneliner", "show", "job", os.environ["SLURM_JOB_ID"]]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return " JobState=RUNNING " in answer.stdout
