"""Kinds of torture with a stub instead of a model: everything that writes is the real store and the real pool.

Every function is one round in a folder of its own; it draws from `luck` only, so that a round can be repeated.
"""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import psutil
from disturbance import (
    DEFECT,
    DONE,
    Outcome,
    at_operation,
    end,
    fail_with,
    in_child,
    kill,
    killed_after,
    refuse_links,
    start,
)
from stub_worker import identity, result_of, samples_of, work_in
from watch import BrokenPromiseError, Watch

from unmask.store import Store
from unmask.store.store import run_id

SWEEP = Path(__file__).with_name("stub_sweep.py")
ITEMS, RUNS = 12, 4
LIMIT = 120.0
"""Seconds after which something that should end counts as hanging."""
REFUSALS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
)


def calm(runs: int, items: int) -> dict[str, object]:
    """What an undisturbed sweep of stubs ends in; known without running it."""
    found = {}
    for seed in range(runs):
        run = run_id(identity(seed, items))
        samples = samples_of(run, items)
        fields = msgspec.to_builtins(result_of(run, None, samples))
        fields["answers"].pop("resumed", None)
        found[run] = {**fields, "samples": list(map(msgspec.to_builtins, samples))}
    return found


def watched(folder: Path, **options: bool) -> Watch:
    """A watch on an empty store, and the place for what it confirms."""
    os.environ["ACKNOWLEDGED"] = str(folder / "acknowledged")
    return Watch(Store(folder / "store"), folder / "acknowledged", **options)


def settle(watch: Watch, folder: Path, runs: int, items: int) -> None:
    """An undisturbed run over what is left must end as if nothing had happened."""
    for seed in range(runs):
        work = partial(work_in, watch.store.root, seed, items)
        if (last := in_child(work, folder / "report")).code != DONE:
            raise BrokenPromiseError(f"an undisturbed run failed: {last.text}")
    watch.expect(calm(runs, items))


def operations(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Kills of a worker in front of, or in the middle of, a file operation."""
    watch = watched(folder)
    seeds = 0
    while kills > 0:
        root, number = watch.store.root, int(3 ** luck.uniform(0, 4.4))

        def work(root: Path = root, number: int = number, seed: int = seeds) -> None:
            random.seed(number)
            at_operation(root, number, kill)
            work_in(root, seed, ITEMS)

        ended = in_child(work, folder / "report")
        _must_be_quiet(ended)
        kills -= ended.killed
        counts["kills"] += ended.killed
        seeds += not ended.killed
        watch.check()
    settle(watch, folder, seeds + 1, ITEMS)
    note(watch, counts)


def moments(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Kills of a worker at random moments, while it writes without a pause."""
    watch = watched(folder)
    items, seeds = 60, 0
    while kills > 0:
        work = partial(work_in, watch.store.root, seeds, items)
        ended = killed_after(work, luck.uniform(0, 0.06), folder / "report")
        _must_be_quiet(ended)
        kills -= ended.killed
        counts["kills"] += ended.killed
        seeds += not ended.killed
        watch.check()
    settle(watch, folder, seeds + 1, items)
    note(watch, counts)


def pool(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Kills of parents, of workers, of both and of groups; in every third round two parents share the store."""
    runners = 2 if luck.random() < 1 / 3 else 1
    watch = watched(folder, alone=runners == 1)
    os.environ["PACE"] = "0.03"
    items = max(ITEMS, 2 * kills)
    parents = [_start_sweep(watch.store.root, items) for _ in range(runners)]
    try:
        while kills > 0:
            time.sleep(luck.uniform(0, 0.7))
            which = luck.randrange(runners)
            if parents[which].poll() is not None:
                parents[which] = _start_sweep(watch.store.root, items)
                continue
            hit = strike(parents[which], luck)
            kills -= hit
            counts["kills"] += hit
            watch.check()
        for parent in parents:
            parent.wait(LIMIT)
        if _start_sweep(watch.store.root, items).wait(LIMIT):
            raise BrokenPromiseError("an undisturbed sweep left runs without a result")
    finally:
        for parent in parents:
            parent.kill()
            parent.wait()
    watch.expect(calm(RUNS, items))
    note(watch, counts)


def two_runners(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Two parents on one store, undisturbed: both end well, every result is published once."""
    del kills
    watch = watched(folder, alone=False)
    os.environ["PACE"] = "0.02"
    parents = []
    for _ in range(2):
        parents.append(_start_sweep(watch.store.root, ITEMS))
        time.sleep(luck.uniform(0, 0.4))
    codes = [parent.wait(LIMIT) for parent in parents]
    if any(codes):
        raise BrokenPromiseError("a runner ended with runs that have no result")
    watch.expect(calm(RUNS, ITEMS))
    counts["runners"] += 2
    note(watch, counts)


def faults(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """The system refuses one file operation, or all from one on; `kills` says how many times."""
    watch = watched(folder, may_fail=True)
    seeds = 0
    for _ in range(kills):
        root, number = watch.store.root, int(3 ** luck.uniform(0, 4.4))
        refusal, lasting = luck.choice(REFUSALS), luck.random() < 0.5

        def work(
            root: Path = root,
            number: int = number,
            refusal: int = refusal,
            last: int = sys.maxsize if lasting else number,
            seed: int = seeds,
        ) -> None:
            at_operation(root, number, fail_with(refusal), last)
            work_in(root, seed, ITEMS)

        ended = in_child(work, folder / "report")
        _must_be_quiet(ended)
        counts["faults"] += 1
        counts["refused with a sentence"] += ended.code != DONE
        seeds += ended.code == DONE
        watch.check()
    settle(watch, folder, seeds + 1, ITEMS)
    note(watch, counts)


def links(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Hard links are refused, or made and yet answered with an error; several workers are at every run."""
    del kills
    refusal, made = luck.choice(
        [(errno.EPERM, False), (errno.EOPNOTSUPP, False), (errno.ESTALE, True), (errno.EIO, True)]
    )
    watch = watched(folder, alone=False, may_fail=made)
    store = watch.store

    def work() -> None:
        refuse_links(refusal, made)
        for seed in range(RUNS):
            work_in(store.root, seed, ITEMS)

    _together([work] * 3, folder, allow_sentences=made)
    counts["links refused"] += RUNS * 3
    watch.check()
    settle(watch, folder, RUNS, ITEMS)
    note(watch, counts)


def strike(parent: "subprocess.Popen[bytes]", luck: random.Random) -> int:
    """Kill the parent, a worker, both, or all at once; the number of processes that were killed.

    Whatever must die with a killed parent is gone when this returns.
    """
    workers = _children(parent.pid)
    victim = luck.choice(["worker", "worker", "parent", "both", "group"]) if workers else "parent"
    chosen = [luck.choice(workers)] if workers and victim in ("worker", "both") else []
    if victim == "group":
        chosen = workers
    hit = sum(_kill(worker, group=victim == "group") for worker in chosen)
    if victim != "worker" and parent.poll() is None:
        os.killpg(parent.pid, signal.SIGKILL)
        hit += parent.wait(LIMIT) == -signal.SIGKILL
        _, alive = psutil.wait_procs(workers, LIMIT)
        if alive:
            raise BrokenPromiseError(f"{len(alive)} workers outlive their parent")
    return hit


def _kill(process: psutil.Process, group: bool) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if group and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True


def _children(parent: int) -> list[psutil.Process]:
    try:
        return psutil.Process(parent).children()
    except psutil.NoSuchProcess:
        return []


def _together(works: list[Callable[[], None]], folder: Path, allow_sentences: bool) -> list[Outcome]:
    reports = [folder / f"report{number}" for number in range(len(works))]
    children = [start(work, report) for work, report in zip(works, reports, strict=True)]
    ended = [end(child, report) for child, report in zip(children, reports, strict=True)]
    for each in ended:
        _must_be_quiet(each)
        if each.code != DONE and not allow_sentences:
            raise BrokenPromiseError(each.text)
    return ended


def _start_sweep(store: Path, items: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(SWEEP), str(store), str(RUNS), str(items)]
    return subprocess.Popen(command, start_new_session=True)


def _must_be_quiet(ended: Outcome) -> None:
    if ended.code == DEFECT or (ended.code < 0 and not ended.killed):
        raise BrokenPromiseError(f"no sentence but {ended.text or ended.code}")


def note(watch: Watch, counts: Counter[str]) -> None:
    """Add what a round looked at to its counts."""
    counts["looks at the store"] += watch.checks
    counts["results"] += len(list(watch.store.runs()))
    counts["hidden files left"] += watch.left_behind()
