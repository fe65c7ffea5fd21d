"""What a SLURM job does: start the worker, pass on the queue's wish that it stop, go back into the queue.

Runs on the compute node, called by submitit. Only the command and two paths are pickled: a worker resumes from what it
has written. Knows signals and states of its own job, nothing of models or devices: those are chosen in the worker.

The time limit's warning (USR2) is handled by submitit, which calls `checkpoint` and requeues. SIGTERM is a preemption
if the job is still said to be running, and is then treated in the same way; otherwise the job was cancelled.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import submitit
from submitit.helpers import Checkpointable, DelayedSubmission

from unmask.launch.processes import has_ended, start_worker, wait_for

GRACE = 10.0
"""Seconds that a worker has to end when told to."""
PAUSE = 0.2
TAIL_BYTES = 8192
WARNING: signal.Signals = getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}")


class Task(Checkpointable):
    """A worker's command as something submitit can call."""

    def __init__(self, argv: tuple[str, ...], result: Path, log_file: Path, requeue: bool) -> None:
        self._argv, self._result, self._log_file, self._requeue = argv, result, log_file, requeue
        self._worker: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        """Run the worker unless the result is there; its exit code becomes the job's."""
        if self._result.exists():
            return
        signal.signal(signal.SIGTERM, self._on_sigterm)
        printed = self._log_file.stat().st_size if self._log_file.exists() else 0
        # The same process group as this process: SLURM may track jobs by it.
        self._worker = start_worker(self._argv, self._log_file, own_session=False, ignore=[WARNING])
        while not has_ended(self._worker):
            time.sleep(PAUSE)
        code = self._worker.wait()
        if code:
            self._show_end(printed)
            sys.exit(code if code > 0 else 128 - code)

    def _show_end(self, begin: int) -> None:
        """Print the end of what the worker has printed, which stands nowhere else if it died before it began."""
        with self._log_file.open("rb") as log:
            log.seek(max(begin, self._log_file.stat().st_size - TAIL_BYTES))
            print(log.read().decode(errors="replace"), flush=True)

    def checkpoint(self) -> DelayedSubmission | None:  # type: ignore[override]
        """Stop the worker; the same command again, or None where it may not be requeued."""
        self._stop()
        if not self._requeue:
            return None
        return DelayedSubmission(Task(self._argv, self._result, self._log_file, self._requeue))

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


def is_running_still() -> bool:
    """Whether the queue takes this job for running: it was preempted, not cancelled."""
    command = ["scontrol", "--oneliner", "show", "job", os.environ["SLURM_JOB_ID"]]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return " JobState=RUNNING " in answer.stdout
