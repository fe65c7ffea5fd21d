"""Kinds of torture by the place and the time: a full disk, folders that cannot be written, a clock that is set back."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from disturbance import DONE, Outcome, in_child
from light import ITEMS, LIMIT, RUNS, note, settle, watched
from real import ended, finish, prepared, run, unmask
from stub_sweep import WORKER, sweep
from stub_worker import work_in
from watch import BrokenPromiseError, Watch

from unmask.store.state import state_of

WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Has permissions count for root too, as they do for everybody else."""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR = 3600.0


# A full disk.


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


def full_disk_of_stubs(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Stubs on a disk that is full again and again, of bytes or of files; `kills` says how many times."""
    if not may_mount():
        counts["skipped: mounting is not permitted"] += 1
        return
    watch = watched(folder, may_fail=True)
    with small_disk(watch.store.root, 2000, 400) as disk:
        for seed in range(kills):
            if luck.random() < 0.5:
                _fill(disk / "ballast", luck.randrange(0, 32) * 1024)
            else:
                _take_all_files(disk / "many", luck.randrange(0, 10))
            outcome = in_child(partial(work_in, disk, seed % RUNS, 4 * ITEMS), folder / "report")
            _sentence_or_done(outcome)
            counts["disks full"] += 1
            counts["refused with a sentence"] += outcome.code != DONE
            (disk / "ballast").unlink(missing_ok=True)
            shutil.rmtree(disk / "many", ignore_errors=True)
            watch.check()
        settle(watch, folder, RUNS, 4 * ITEMS)
        note(watch, counts)


def full_disk(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` on a full disk, and again when there is room."""
    del kills
    if not may_mount():
        counts["skipped: mounting is not permitted"] += 1
        return
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder, may_fail=True)
    with small_disk(watch.store.root, 8000, 4000) as disk:
        _fill(disk / "ballast", luck.choice([0, 8, 24, 48, 64, 96]) * 1024)
        code, _ = ended(run(recipe, watch.store))
        counts["disks full"] += 1
        counts["refused with a sentence"] += code != 0
        watch.check()
        ended(unmask("status", "--store", disk))
        (disk / "ballast").unlink()
        finish(recipe, watch.store, "--retry-failed")
        watch.expect(calm)
        note(watch, counts)


def _fill(file: Path, left: int) -> None:
    """Write until only so many bytes are free."""
    status = os.statvfs(file.parent)
    with file.open("wb") as stream:
        stream.truncate(0)
        os.posix_fallocate(stream.fileno(), 0, max(1, status.f_bavail * status.f_frsize - left))


def _take_all_files(folder: Path, left: int) -> None:
    """Make files until only so many more can be made."""
    folder.mkdir()
    for number in range(max(0, os.statvfs(folder).f_favail - left)):
        (folder / str(number)).touch()


def _sentence_or_done(outcome: Outcome) -> None:
    if outcome.code not in (0, 3):
        raise BrokenPromiseError(f"no sentence but {outcome.text or outcome.code}")


# Folders that cannot be written or read.


def closed_folder(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` and `status` on a store of which a part is closed; `kills` says how many parts, by turns."""
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder, may_fail=True)
    first = run(recipe, watch.store)
    time.sleep(luck.uniform(2, 6))
    first.kill()
    ended(first)
    for _ in range(kills):
        runs = [each.folder for each in watch.store.runs()]
        some = luck.choice(runs) if runs else watch.store.root
        parts = [
            watch.store.root,
            watch.store.runs_folder,
            some,
            some / "attempts",
            some / "attempts" / "0001",
        ]
        part = luck.choice([each for each in parts if each.is_dir()])
        mode = luck.choice([0o555, 0o000])
        part.chmod(mode)
        try:
            prefix = WITHOUT_OVERRIDE if os.geteuid() == 0 else ()
            counts["folders closed"] += 1
            ended(unmask("status", "--store", watch.store.root, prefix=prefix))
            code, _ = ended(run(recipe, watch.store, prefix=prefix))
            counts["refused with a sentence"] += code != 0
        finally:
            part.chmod(0o755)
        watch.check()
    if may_mount():
        _read_only(recipe, watch, counts)
    finish(recipe, watch.store, "--retry-failed")
    watch.expect(calm)
    note(watch, counts)


def _read_only(recipe: Path, watch: Watch, counts: Counter[str]) -> None:
    """The whole store on a file system that is mounted read-only."""
    place = str(watch.store.root)
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        code, text = ended(run(recipe, watch.store))
        if code != 2 and any(each.result() is None for each in watch.store.runs()):
            raise BrokenPromiseError(f"a store that is read-only gave {code}: {text}")
        ended(unmask("status", "--store", place))
        counts["read-only file systems"] += 1
    finally:
        subprocess.run(["umount", place], check=True)
    watch.check()


# A clock that is set back.


def clock_of_stubs(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """A worker of another machine is at a run when the clock is set back; a second one takes its run meanwhile.

    Its process cannot be looked up, so its heartbeat alone tells that it lives: after the clock is set back, the
    heartbeat lies in the future until it beats again.
    """
    del kills
    watch = watched(folder, alone=False)
    root = watch.store.root
    runs = sweep(root, RUNS, ITEMS)
    environment = {**os.environ, "STUB_HOST": "elsewhere", "PACE": "0.2"}
    others = [
        subprocess.Popen([sys.executable, str(WORKER), str(each.folder)], env=environment) for each in runs
    ]
    limit = time.monotonic() + LIMIT
    while not all(state_of(each).status in ("running", "done") for each in runs):
        if time.monotonic() > limit:
            raise BrokenPromiseError("a worker elsewhere is not seen by its heartbeat")
        time.sleep(0.02)
    ahead = luck.uniform(1, 48) * HOUR
    for file in root.rglob("*"):
        now = file.stat().st_mtime
        os.utime(file, (now + ahead, now + ahead))
    watch.check()
    for seed in range(RUNS):
        _sentence_or_done(in_child(partial(work_in, root, seed, ITEMS), folder / "report"))
    for other in others:
        if other.wait(LIMIT):
            raise BrokenPromiseError("the worker elsewhere failed")
    settle(watch, folder, RUNS, ITEMS)
    counts["clocks set back"] += 1
    note(watch, counts)


def clock(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """`unmask run` by three clocks: one ahead, killed on the way; one behind; the right one."""
    del kills
    if not FAKETIME.exists():
        counts["skipped: faketime is not installed"] += 1
        return
    recipe, calm = prepared(folder.parents[1])
    watch = watched(folder)
    for offset in ("+30h", "-20h"):
        shifted = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "NO_FAKE_STAT": "1"}
        parent = run(recipe, watch.store, **shifted)
        time.sleep(luck.uniform(3, 9))
        parent.kill()
        ended(parent)
        watch.check()
        ended(unmask("status", "--store", watch.store.root, **shifted))
        counts["clocks set back"] += 1
    finish(recipe, watch.store)
    watch.expect(calm)
    note(watch, counts)
