"""A worker on the real store without a model, a sweep of such workers, and ways to disturb them.

`stub.py work RUN_FOLDER` may be killed at any time; `stub.py sweep STORE RUNS ITEMS` works on two slots and exits with
the number of runs without a result. Answers depend on the run and the item only, so that any way to the result ends in
the same one. What the store has confirmed is noted in the file that ACKNOWLEDGED names, outside of the store: it must
never be missing from then on.

A disturbance is a kill or an error at a file operation, or a kill at a moment. A file operation is one below the
store's folder: opening, renaming, linking, removing, making a folder, writing, bringing to the disk.
"""

import errno
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.launch import WorkerCommand, WorkerSlot, local_pool
from unmask.store import RunFolder, Store
from unmask.store.attempt import Attempt, GeneratedAnswer, Sample
from unmask.store.computation import Computation
from unmask.store.result import AccuracyResult, Answers
from unmask.store.state import state_of
from unmask.store.stopping import AnsweredRow, add_rows
from unmask.store.worker_file import WorkerFile

PUBLISHED, ROW = "published", "row/"
KIND = Computation(unmask="0", torch="0", device="cpu", dtype="float32")
ROUND = 2
"""Items after which their rows are written, as by a run that may end early."""


def identity(seed: int, items: int) -> dict[str, Any]:
    """What identifies a run of the stub."""
    return {"schema": 1, "kind": "accuracy", "task": {"name": "torture"}, "seed": seed, "items": items}


def answer(run: str, item: int) -> GeneratedAnswer:
    """What this run answers to an item."""
    digest = hashlib.sha256(f"{run}/{item}".encode()).hexdigest()
    return GeneratedAnswer(key=f"item/{item}", text=digest, tokens=1, finish="stop", effect=(1, [], [], 0, 0))


def sample(answered: GeneratedAnswer) -> Sample:
    """The sample that an answer becomes."""
    return Sample(id=answered.key, answer=answered.text, correct=int(answered.text, 16) % 2)


def row_of(run: str, item: int) -> AnsweredRow:
    """The scored row of an item."""
    scored = sample(answer(run, item))
    return AnsweredRow(row=f"{ROW}{item}", value=scored.correct or 0)


def samples_of(run: str, items: int) -> list[Sample]:
    """All samples of a run, in the order in which they are written."""
    return sorted((sample(answer(run, item)) for item in range(items)), key=lambda each: each.id)


def result_of(run: str, attempt: str | None, samples: list[Sample]) -> AccuracyResult:
    """The result of a run."""
    return AccuracyResult(
        id=run,
        attempt=attempt,
        task="light",
        value=sum(each.correct or 0 for each in samples) / len(samples),
        rows=len(samples),
        answers=Answers(sha256=hashlib.sha256(repr(samples).encode()).hexdigest()),
    )


def acknowledge(*words: str) -> None:
    """Note outside of the store what it has confirmed; one small append is whole or not there."""
    if file := os.environ.get("ACKNOWLEDGED"):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, (" ".join(words) + "\n").encode())
        os.close(descriptor)


def work(run: RunFolder, pace: float) -> None:
    """Answer what is not answered yet and publish, in the order of `unmask run-one`."""
    if run.result() is not None:
        return
    worker = WorkerFile.create(run.folder.parents[1])
    try:
        worker.hold(run.id)
        _attempt(run, run.new_attempt(worker.name), pace)
    finally:
        worker.close()


def _attempt(run: RunFolder, attempt: Attempt, pace: float) -> None:
    with attempt.working():
        attempt.compute_as(KIND)
        items = run.identity["items"]
        known = run.answers(KIND)
        for item in range(items):
            key = f"item/{item}"
            if key not in known:
                time.sleep(random.uniform(0, pace))
                known[key] = answer(run.id, item)
                attempt.answer(known[key])
                acknowledge(run.id, key)
            attempt.progress(item + 1, items)
            if item % ROUND == ROUND - 1:
                add_rows(attempt, [row_of(run.id, each) for each in range(item + 1 - ROUND, item + 1)])
                acknowledge(run.id, f"{ROW}{item}")
        samples = sorted(map(sample, known.values()), key=lambda each: each.id)
        attempt.write_samples(samples)
        attempt.close()
        if run.publish(result_of(run.id, attempt.number, samples)):
            acknowledge(run.id, PUBLISHED)


def work_in(root: Path, seed: int, items: int, pace: float = 0.0) -> None:
    """Make the run if it is new, and work on it."""
    work(Store.at(root).run(identity(seed, items)), pace)


def sweep(root: Path, runs: int, items: int) -> list[RunFolder]:
    """The runs, made if they are new."""
    store = Store.at(root)
    return [store.run(identity(seed, items)) for seed in range(runs)]


def run_sweep(root: Path, count: int, items: int) -> int:
    """Have workers at all runs; the number of runs without a result."""
    runs = sweep(root, count, items)
    jobs = [
        WorkerCommand(run.id, run.folder, run.name, (sys.executable, __file__, "work", str(run.folder)))
        for run in runs
    ]
    slots = [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")]
    with local_pool(jobs, slots, held=_is_held, pause=0.02) as events:
        for _event in events:
            pass
    return sum(not job.done for job in jobs)


def _is_held(job: WorkerCommand) -> bool:
    """Whether another runner's worker is at it, as `unmask run` judges it."""
    return state_of(RunFolder(job.folder)).status == "running"


# Disturbances.

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


@contextmanager
def small_disk(folder: Path, kilobytes: int, files: int) -> Iterator[Path]:
    """A file system of its own with so much room."""
    folder.mkdir(parents=True)
    options = f"size={kilobytes}k,nr_inodes={files}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def may_mount() -> bool:
    """Whether this process may mount a file system."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def fill(file: Path, left: int) -> None:
    """Write until only so many bytes are free."""
    status = os.statvfs(file.parent)
    with file.open("wb") as stream:
        stream.truncate(0)
        os.posix_fallocate(stream.fileno(), 0, max(1, status.f_bavail * status.f_frsize - left))


def take_all_files(folder: Path, left: int) -> None:
    """Make files until only so many more can be made."""
    folder.mkdir()
    for number in range(max(0, os.statvfs(folder).f_favail - left)):
        (folder / str(number)).touch()


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


if __name__ == "__main__":
    if host := os.environ.get("STUB_HOST"):  # a machine whose processes cannot be looked up from here
        socket.gethostname = lambda: host
    if sys.argv[1] == "work":
        work(RunFolder(Path(sys.argv[2])), float(os.environ.get("PACE", "0.04")))
    else:
        sys.exit(run_sweep(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
