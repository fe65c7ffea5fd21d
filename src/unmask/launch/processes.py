"""Worker processes: started on a leash, watched without being reaped, stopped for certain.

Knows nothing of slots, queues or run folders.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from unmask.launch.dialogue import StarterEnd
from unmask.store.files import open_to_append
from unmask.store.redaction import clean_copy

LEASH = Path(__file__).with_name("leash.py")
PAUSE = 0.02
LOG_SECONDS = 5.0
"""How long the last words of a worker may take to reach its log."""


class WorkerProcess(subprocess.Popen[bytes]):
    """A process whose output passes another one that hides secrets; waiting for it waits for its log too."""

    log_copy: subprocess.Popen[bytes]
    talk: StarterEnd | None = None
    """Where it takes further runs from, if it stays."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once the last words are in the log; a child that goes on printing is not waited for."""
        code = super().wait(timeout)
        with suppress(subprocess.TimeoutExpired):
            self.log_copy.wait(LOG_SECONDS)
        if self.talk is not None:
            self.talk.hang_up()
        return code


def start_worker(
    argv: Sequence[str],
    log_file: Path,
    environment: Mapping[str, str] | None = None,
    *,
    own_session: bool,
    ignore: Iterable[signal.Signals] = (),
    talk: StarterEnd | None = None,
) -> WorkerProcess:
    """Start a command that dies with this process and appends its output, without secrets, to a file."""
    ignored = ",".join(str(int(each)) for each in ignore)
    leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), ignored, "--"]
    with open_to_append(log_file) as log:
        copy = clean_copy(log)
    assert copy.stdin is not None, "it was asked for"
    with copy.stdin as output:
        process = WorkerProcess(
            [*leash, *argv],
            stdin=talk.for_worker.fileno() if talk else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=own_session,
        )
    process.log_copy = copy
    if talk is not None:
        talk.for_worker.close()
        process.talk = talk
    return process


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it stays a zombie where that is possible, so that its number is not given away.

    Safe in a signal handler, where `poll` may find its own lock taken.
    """
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:
        return True


def reap_group(process: subprocess.Popen[bytes], seconds: float = 5.0) -> int | None:
    """Kill what is left of a session leader and its group; the exit code, or None if the kernel does not let go."""
    signal_group(process, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a session leader's group, if there is one left."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: not permitted for a group of zombies
        os.killpg(process.pid, number)


def wait_for(ended: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    limit = time.monotonic() + seconds
    while not ended():
        if time.monotonic() >= limit:
            return False
        time.sleep(PAUSE)
    return True
