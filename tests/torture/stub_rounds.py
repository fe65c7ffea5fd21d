"""Rounds of torture with a stub instead of a model: everything that writes is the real store and the real pool.

Every round has a folder of its own and draws from `luck` only, so that it can be repeated. `kills` says how many kills,
or faults, it is to have.
"""

import errno
import json
import os
import random
import shutil
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
import stub
from stub import DEFECT, DONE, Outcome, acknowledge, in_child, work_in
from watch import BrokenPromiseError, Watch

from unmask.store import Store, publish_once
from unmask.store.experiments import AnnouncedJobs, Member, read_experiment, read_jobs, write_experiment
from unmask.store.state import state_of
from unmask.store.store import run_id

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
        run = run_id(stub.identity(seed, items))
        samples = stub.samples_of(run, items)
        fields = msgspec.to_builtins(stub.result_of(run, None, samples))
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
            stub.at_operation(root, number, stub.kill)
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
        ended = stub.killed_after(work, luck.uniform(0, 0.06), folder / "report")
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
            stub.at_operation(root, number, stub.fail_with(refusal), last)
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
        stub.refuse_links(refusal, made)
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
    children = [stub.start(work, report) for work, report in zip(works, reports, strict=True)]
    ended = [stub.end(child, report) for child, report in zip(children, reports, strict=True)]
    for each in ended:
        _must_be_quiet(each)
        if each.code != DONE and not allow_sentences:
            raise BrokenPromiseError(each.text)
    return ended


def _start_sweep(store: Path, items: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, stub.__file__, "sweep", str(store), str(RUNS), str(items)]
    return subprocess.Popen(command, start_new_session=True)


def _must_be_quiet(ended: Outcome) -> None:
    if ended.code == DEFECT or (ended.code < 0 and not ended.killed):
        raise BrokenPromiseError(f"no sentence but {ended.text or ended.code}")


def note(watch: Watch, counts: Counter[str]) -> None:
    """Add what a round looked at to its counts."""
    counts["looks at the store"] += watch.checks
    counts["results"] += len(list(watch.store.runs()))
    counts["hidden files left"] += watch.left_behind()


# Files with several writers.

WRITERS, TURNS = 3, 6
NAME = "torture"
TEXT = 'name = "torture"\n'


def writers(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Writers at once, some of which are killed at a file operation; in a part of the rounds without hard links."""
    watch = watched(folder)
    store, linkless = watch.store, luck.random() < 0.4
    turn = 0
    while kills > 0:
        children = []
        for writer in range(WRITERS):
            dies_at = int(3 ** luck.uniform(0, 4.4)) if luck.random() < 0.7 else None
            work = partial(_write, store, f"{turn}.{writer}", turn, dies_at, linkless)
            report = folder / f"report{writer}"
            children.append((stub.start(work, report), report))
        for child, report in children:
            ended = stub.end(child, report)
            if ended.code not in (DONE, -9):
                raise BrokenPromiseError(f"a writer failed: {ended.text}")
            kills -= ended.killed
            counts["kills"] += ended.killed
        turn += 1
        _check_writers(store, folder / "acknowledged", counts, linkless)
    last = in_child(partial(_write, store, f"{turn}.last", turn, None, linkless), folder / "report")
    if last.code != DONE:
        raise BrokenPromiseError(f"an undisturbed writer failed: {last.text}")
    _check_writers(store, folder / "acknowledged", counts, linkless)


def _write(store: Store, writer: str, turn: int, dies_at: int | None, linkless: bool) -> None:
    """What one writer does, by turns with the others."""
    random.seed(writer)
    if linkless:
        stub.refuse_links(errno.EPERM)
    if dies_at is not None:
        stub.at_operation(store.root, dies_at, stub.kill)
    for number in range(TURNS):
        key = f"{writer}.{number}"
        announced = AnnouncedJobs.announce(store, NAME, [key, f"{key}.b"])
        acknowledge("queued", key)
        announced.confirm([key, f"{key}.b"])
        acknowledge("job", key)
        member = Member(configuration=key, task="t", limit=None, id=key, folder=key, kind="accuracy")
        write_experiment(store, NAME, store.root / "recipe.toml", TEXT, [member], None)
        acknowledge("member", key)
        time.sleep(random.uniform(0, 0.002))
        if publish_once(store.root / f"{turn}.{number}.json", {"writer": writer, "text": writer * 5000}):
            acknowledge("won", f"{turn}.{number}")


def _check_writers(store: Store, acknowledged: Path, counts: Counter[str], linkless: bool) -> None:
    """What was confirmed is there once; what was not is there once or not at all, and whole."""
    counts["looks at the store"] += 1
    lines = [line.split() for line in acknowledged.read_text().splitlines()] if acknowledged.exists() else []
    kinds = ("queued", "job", "member", "won")
    confirmed = {kind: [key for each, key in lines if each == kind] for kind in kinds}
    jobs = list(read_jobs(store, NAME))
    times = Counter(job["run"] for job in jobs)
    with_id = {job["run"] for job in jobs if job.get("job") == job["run"]}
    for key in (run for run in times if not run.endswith(".b")):
        if not times[key] == times[f"{key}.b"] == 1 or (key in with_id) != (f"{key}.b" in with_id):
            raise BrokenPromiseError(f"the jobs of {key} are half written or doubled")
    if lost := (set(confirmed["queued"]) - times.keys()) | (set(confirmed["job"]) - with_id):
        raise BrokenPromiseError(f"the list of jobs has lost {sorted(lost)}")
    experiment = read_experiment(store, NAME)
    members = {member.id for member in experiment.members} if experiment else set()
    if missing := set(confirmed["member"]) - members:
        raise BrokenPromiseError(f"the experiment has lost {sorted(missing)}")
    doubled = [name for name, times in Counter(confirmed["won"]).items() if times > 1]
    # Without hard links two may be told so, which is not promised otherwise; what they published is still whole.
    if doubled and not linkless:
        raise BrokenPromiseError(f"two writers were told that they had published {doubled}")
    for file in store.root.glob("[0-9]*.json"):
        content = json.loads(file.read_bytes())
        if content["text"] != content["writer"] * 5000:
            raise BrokenPromiseError(f"{file.name} is mixed")
    counts["lines of jobs"] = max(counts["lines of jobs"], len(jobs))


# A full disk.


def full_disk_of_stubs(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Stubs on a disk that is full again and again, of bytes or of files; `kills` says how many times."""
    if not stub.may_mount():
        counts["skipped: mounting is not permitted"] += 1
        return
    watch = watched(folder, may_fail=True)
    with stub.small_disk(watch.store.root, 2000, 400) as disk:
        for seed in range(kills):
            if luck.random() < 0.5:
                stub.fill(disk / "ballast", luck.randrange(0, 32) * 1024)
            else:
                stub.take_all_files(disk / "many", luck.randrange(0, 10))
            outcome = in_child(partial(work_in, disk, seed % RUNS, 4 * ITEMS), folder / "report")
            _must_be_quiet(outcome)
            counts["disks full"] += 1
            counts["refused with a sentence"] += outcome.code != DONE
            (disk / "ballast").unlink(missing_ok=True)
            shutil.rmtree(disk / "many", ignore_errors=True)
            watch.check()
        settle(watch, folder, RUNS, 4 * ITEMS)
        note(watch, counts)


# A clock that is set back.


def clock_of_stubs(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """A worker of another machine is at a run when the clock is set back; a second one takes its run meanwhile.

    Its process cannot be looked up, so its heartbeat alone tells that it lives: after the clock is set back, the
    heartbeat lies in the future until it beats again.
    """
    del kills
    watch = watched(folder, alone=False)
    root = watch.store.root
    runs = stub.sweep(root, RUNS, ITEMS)
    environment = {**os.environ, "STUB_HOST": "elsewhere", "PACE": "0.2"}
    others = [
        subprocess.Popen([sys.executable, stub.__file__, "work", str(each.folder)], env=environment)
        for each in runs
    ]
    limit = time.monotonic() + LIMIT
    while not all(state_of(each).status in ("running", "done") for each in runs):
        if time.monotonic() > limit:
            raise BrokenPromiseError("a worker elsewhere is not seen by its heartbeat")
        time.sleep(0.02)
    ahead = luck.uniform(1, 48) * 3600.0
    for file in root.rglob("*"):
        now = file.stat().st_mtime
        os.utime(file, (now + ahead, now + ahead))
    watch.check()
    for seed in range(RUNS):
        _must_be_quiet(in_child(partial(work_in, root, seed, ITEMS), folder / "report"))
    for other in others:
        if other.wait(LIMIT):
            raise BrokenPromiseError("the worker elsewhere failed")
    settle(watch, folder, RUNS, ITEMS)
    counts["clocks set back"] += 1
    note(watch, counts)
