"""Runs one case, in this process or as a command, and says what was not as it should be.

A case may end with exit code 0, 1 or 2. With 2 there is one sentence and nothing was written; in every case there is no
traceback, no half-written file, nothing changed outside, no signal to a foreign process, and at most so many seconds of
CPU. Time that passes is not judged, but a case that does not end is interrupted.
"""

import faulthandler
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import click
import psutil
from click.testing import CliRunner
from world import Case

from unmask.cli import app

MOST_SECONDS = 5.0
"""CPU seconds of a case in this process."""
MOST_COMMAND_SECONDS = 20.0
"""The same for a command, which loads Python, torch and lm-eval first."""
LONGEST_WAIT = 600
"""Seconds until a case counts as one that does not end; a machine may be busy with other things."""
LONGEST_SENTENCE = 2_000
INTERRUPTED = 130
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
UNFINISHED = re.compile(r"\.(.+\.[0-9]+\.[0-9a-f]{8}|new\..+|removed\..+)")
"""Names of files that are being written."""
FREE_TEXT = {"generate"}
"""Verbs that give the words of a model as they are where the output is no terminal."""
SAYS_IT_ITSELF = {"info"}
"""Verbs whose document says what is wrong."""
START_UP = "from unmask.cli import main; main()"
ENVIRONMENT = {
    "COLUMNS": "140",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


class HangError(BaseException):
    """A case did not end in its time; no handler of the program may catch it."""


@dataclass
class Ran:
    """What a case did."""

    code: int | None
    seconds: float
    stdout: str
    stderr: str
    wrong: list[str] = field(default_factory=list)
    """What was not as it should be."""
    changed: bool = True
    """Whether anything in the case's folder may be otherwise than before."""


def in_process(case: Case, folder: Path) -> Ran:
    """Run a case here."""
    before, outside = _written(folder), _written(folder.parent / "outside")
    signals: list[str] = []
    start = _cpu_seconds()
    trouble: list[str] = []
    with _in_folder(folder), _watched(signals), patch.object(click, "launch", lambda *_, **__: 0):
        try:
            result = CliRunner().invoke(app, list(case.argv), prog_name="unmask", catch_exceptions=True)
            code, stdout, stderr = result.exit_code, result.stdout, result.stderr
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                trouble.append("".join(traceback.format_exception(result.exception))[-1500:])
        except HangError as error:
            code, stdout, stderr = None, "", ""
            trouble.append(f"hangs: {error}")
    ran = Ran(code, _cpu_seconds() - start, stdout, stderr, [*trouble, *signals])
    _judge(ran, case, MOST_SECONDS)
    _look(ran, folder, before)
    ran.wrong += _compared(folder.parent / "outside", outside)
    return ran


def as_command(case: Case, folder: Path, environment: dict[str, str]) -> Ran:
    """Run a case as a process of its own."""
    before, outside = _written(folder), _written(folder.parent / "outside")
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    # What stands in for Python here does so in the command too, so that its workers are planted ones.
    start_up = f"import sys; sys.argv[0] = 'unmask'; sys.executable = {sys.executable!r}; {START_UP}"
    words = [sys.executable, "-c", start_up, *case.argv]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST_WAIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(None, 0.0, "", "", ["hangs as a command"])
    except (ValueError, OSError) as error:  # no system takes such words
        return Ran(2, 0.0, "", "", [] if "null byte" in str(error) else [f"cannot be started: {error}"])
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    ran = Ran(
        done.returncode, seconds, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    _judge(ran, case, MOST_COMMAND_SECONDS)
    _look(ran, folder, before)
    ran.wrong += _compared(folder.parent / "outside", outside)
    return ran


def _judge(ran: Ran, case: Case, most_seconds: float) -> None:
    codes = (0, 1, 2, INTERRUPTED) if _interrupts(case) else (0, 1, 2)
    if ran.code not in codes:
        ran.wrong.append(f"exit code {ran.code}: {ran.stderr[-500:]}")
    if "Traceback (most recent call last)" in ran.stdout + ran.stderr:
        ran.wrong.append(f"a traceback: {ran.stderr[-800:]}")
    if ran.seconds > most_seconds:
        ran.wrong.append(f"{ran.seconds:.1f} CPU seconds")
    said = ran.stderr if case.argv[:1] and case.argv[0] in FREE_TEXT else ran.stdout + ran.stderr
    if found := CONTROL.search(said):
        ran.wrong.append(
            f"a control character {found[0]!r} in the output: {said[max(0, found.start() - 80) : found.end() + 20]!r}"
        )
    if ran.code == 2 and case.argv[0] not in SAYS_IT_ITSELF:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("Error: ")]
        last = (ran.stderr.splitlines() or [""])[-1]
        if len(errors) != 1 or errors[0] != last or not last.endswith("."):
            ran.wrong.append(f"not one sentence: {ran.stderr[-500:]!r}")
        elif len(last) > LONGEST_SENTENCE:
            ran.wrong.append(f"a sentence of {len(last)} characters: {last[:300]}...")


def _interrupts(case: Case) -> bool:
    """Whether code of the case's own may raise what Ctrl-C raises, which nobody can tell from Ctrl-C."""
    return any(b"KeyboardInterrupt" in edit.content for edit in case.edits)


Snapshot = dict[str, tuple[int, int, int]]


def _written(folder: Path) -> Snapshot:
    """Size and time of everything in a folder."""
    found: Snapshot = {}
    folders = [str(folder)]
    while folders:  # three times in every case, so not by way of pathlib
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                found[entry.path] = (status.st_size, status.st_mtime_ns, status.st_ino)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found


def _look(ran: Ran, folder: Path, before: Snapshot) -> None:
    """What a case has changed in its folder, and whether it may."""
    after = _written(folder)
    ran.changed = after != before
    if not ran.changed:
        return
    marks = set(before.values())
    new = [Path(name) for name, mark in after.items() if mark not in marks]
    left = [file for file in map(Path, after.keys() - before.keys()) if UNFINISHED.fullmatch(file.name)]
    ran.wrong += [f"left unfinished: {file.relative_to(folder)}" for file in left]
    files = [file for file in new if file.is_file() and not file.is_symlink()]
    ran.wrong += [
        f"half written: {file.relative_to(folder)} ({why})" for file in files if (why := _broken(file))
    ]
    added = [Path(name).relative_to(folder) for name in after.keys() - before.keys()]
    refused = sorted(str(file) for file in added if ran.code == 2 and file.parts[0] != "results")
    ran.wrong += [f"refused, but wrote {', '.join(refused)}"] * bool(refused)


def _broken(file: Path) -> str:
    """Why a file that was written is not whole."""
    try:
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix == ".jsonl":
            for line in file.read_bytes().splitlines():
                json.loads(line)
        elif file.suffix == ".html" and not file.read_text().rstrip().endswith("</html>"):
            return "it has no end"
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _compared(folder: Path, before: Snapshot) -> list[str]:
    return [] if _written(folder) == before else ["something outside was changed"]


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """The case's folder is the working one, its variables are set, and what commands leave behind is put back."""
    place, path, loaded = Path.cwd(), list(sys.path), set(sys.modules)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        with patch.dict(os.environ, ENVIRONMENT):
            yield
    finally:
        os.chdir(place)
        sys.path[:] = path
        for name in sys.modules.keys() - loaded:
            if _is_below(sys.modules[name], folder):
                del sys.modules[name]
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_below(module: Any, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}")


@contextmanager
def _watched(signals: list[str]) -> Iterator[None]:
    """Interrupt a case that does not end, and note signals to processes that are not this one's children."""

    def over(number: int, frame: FrameType | None) -> None:
        stack = io.StringIO()
        traceback.print_stack(frame, limit=12, file=stack)
        raise HangError(
            f"{'CPU time' if number == signal.SIGPROF else 'time'} is up; {stack.getvalue()[-1500:]}"
        )

    def send(pid: int, number: int) -> None:
        if pid <= 0 or not _is_child(pid):
            signals.append(f"signal {number} to process {pid}")
        else:
            kill(pid, number)

    kill = os.kill
    before = {number: signal.signal(number, over) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, 3 * MOST_SECONDS, 5.0)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT, 5.0)
    # Code that never comes back to Python runs no handler of Python's: this one says where it is, and ends the process.
    faulthandler.register(signal.SIGVTALRM, chain=True)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10 * MOST_SECONDS)
    try:
        with (
            patch.object(os, "kill", send),
            patch.object(psutil.Process, "send_signal", lambda self, number: send(self.pid, number)),
        ):
            yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL, signal.ITIMER_VIRTUAL):
            signal.setitimer(timer, 0)
        faulthandler.unregister(signal.SIGVTALRM)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_child(pid: int) -> bool:
    try:
        return os.getpid() in (pid, *(parent.pid for parent in psutil.Process(pid).parents()))
    except psutil.NoSuchProcess:
        return True
