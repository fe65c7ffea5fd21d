"""Ways to disturb a piece of work in a process of its own: a kill or an error at a file operation, a kill at a moment.

A file operation is one below the store's folder: opening, renaming, linking, removing, making a folder, writing,
bringing to the disk. Its number makes a disturbance repeatable.
"""

import errno
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

OPERATIONS = {
    "open": (0,),
    "os.rename": (0, 1),
    "os.link": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.utime": (0,),
    "os.chmod": (0,),
    "os.listdir": (0,),
    "os.scandir": (0,),
}
"""Audit events of file operations, with the places of their paths."""
DONE, SENTENCE, DEFECT = 0, 3, 4
"""Exit codes of the work: it ended, one sentence, anything else."""


@dataclass(frozen=True)
class Outcome:
    """How the work ended."""

    killed: bool
    code: int
    text: str
    """The sentence of a refusal, or a traceback."""


Act = Callable[[int | None, bytes], None]
"""What happens at the operation; for a write it is given the file and the bytes."""


def kill(descriptor: int | None, content: bytes) -> None:
    """End this process at once; a write is cut in the middle."""
    if descriptor is not None and content:
        REAL["write"](descriptor, content[: random.randrange(len(content))])
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(number: int) -> Act:
    """Refuse the operation as the system would; a full disk first takes a part of a write."""

    def fail(descriptor: int | None, content: bytes) -> None:
        if descriptor is not None and content and number in (errno.ENOSPC, errno.EDQUOT):
            REAL["write"](descriptor, content[: len(content) // 2])
        raise OSError(number, os.strerror(number))

    return fail


REAL = {"write": os.write, "fsync": os.fsync, "link": os.link}


class _Counter:
    def __init__(self, root: Path, first: int, last: int, act: Act) -> None:
        self.root, self.first, self.last, self.act = str(root), first, last, act
        self.seen = 0
        self.acting = False

    def count(self, descriptor: int | None = None, content: bytes = b"") -> None:
        if self.acting:
            return
        self.seen += 1
        if self.first <= self.seen <= self.last:
            self.acting = True
            try:
                self.act(descriptor, content)
            finally:
                self.acting = False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        for place in OPERATIONS.get(event, ()):
            path = arguments[place]
            if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(self.root):
                self.count()
                return

    def write(self, descriptor: int, content: bytes) -> int:
        if _is_below(self.root, descriptor):
            self.count(descriptor, bytes(content))
        return int(REAL["write"](descriptor, content))

    def fsync(self, descriptor: int) -> None:
        if _is_below(self.root, descriptor):
            self.count()
        REAL["fsync"](descriptor)


def at_operation(root: Path, first: int, act: Act, last: int | None = None) -> None:
    """Have this process disturbed at a file operation, or at all from the first to the last; there is no way back."""
    counter = _Counter(root, first, first if last is None else last, act)
    os.write, os.fsync = counter.write, counter.fsync
    sys.addaudithook(counter.hook)


def refuse_links(number: int, made: bool = False) -> None:
    """Have every hard link of this process fail, after it was made or without it being made."""

    def link(*arguments: Any, **options: Any) -> None:
        if made:
            REAL["link"](*arguments, **options)
        raise OSError(number, os.strerror(number))

    os.link = link


def start(work: Callable[[], None], report: Path) -> int:
    """Do the work in a child; its number."""
    child = os.fork()
    if child:
        return child
    code = DEFECT
    try:
        work()
        code = DONE
    except UnmaskError as error:
        _write(report, str(error))
        code = SENTENCE
    except BaseException:
        _write(report, traceback.format_exc())
    finally:
        os._exit(code)


def _write(report: Path, text: str) -> None:
    with report.open("w") as stream:
        stream.write(text)


def end(child: int, report: Path) -> Outcome:
    """Wait for a child and tell how it ended."""
    _, status = os.waitpid(child, 0)
    text = report.read_text() if report.exists() else ""
    report.unlink(missing_ok=True)
    if os.WIFSIGNALED(status):
        return Outcome(os.WTERMSIG(status) == signal.SIGKILL, -os.WTERMSIG(status), text)
    return Outcome(False, os.WEXITSTATUS(status), text)


def in_child(work: Callable[[], None], report: Path) -> Outcome:
    """Do the work in a child and wait for it."""
    return end(start(work, report), report)


def killed_after(work: Callable[[], None], seconds: float, report: Path) -> Outcome:
    """Do the work in a child that is killed after a while."""
    child = start(work, report)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return end(child, report)


def _is_below(root: str, descriptor: int) -> bool:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(root)
    except OSError:
        return False
