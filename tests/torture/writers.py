"""Files with several writers: the list of submitted jobs, the experiment, files that the first writer publishes."""

import errno
import json
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

from disturbance import DONE, at_operation, end, in_child, kill, refuse_links, start
from light import watched
from stub_worker import acknowledge
from watch import BrokenPromiseError

from unmask.store import Store, publish_once
from unmask.store.experiments import Member, append_jobs, read_experiment, read_jobs, write_experiment

WRITERS, TURNS = 3, 6
NAME = "torture"
TEXT = 'name = "torture"\n'


def several(luck: random.Random, folder: Path, kills: int, counts: Counter[str]) -> None:
    """Writers at once, some of which are killed at a file operation; in a part of the rounds without hard links."""
    watch = watched(folder)
    store, linkless = watch.store, luck.random() < 0.4
    turn = 0
    while kills > 0:
        children = []
        for writer in range(WRITERS):
            dies_at = int(3 ** luck.uniform(0, 4.4)) if luck.random() < 0.7 else None
            work = partial(write, store, f"{turn}.{writer}", turn, dies_at, linkless)
            report = folder / f"report{writer}"
            children.append((start(work, report), report))
        for child, report in children:
            ended = end(child, report)
            if ended.code not in (DONE, -9):
                raise BrokenPromiseError(f"a writer failed: {ended.text}")
            kills -= ended.killed
            counts["kills"] += ended.killed
        turn += 1
        check(store, folder / "acknowledged", counts)
    last = in_child(partial(write, store, f"{turn}.last", turn, None, linkless), folder / "report")
    if last.code != DONE:
        raise BrokenPromiseError(f"an undisturbed writer failed: {last.text}")
    check(store, folder / "acknowledged", counts)


def write(store: Store, writer: str, turn: int, dies_at: int | None, linkless: bool) -> None:
    """What one writer does, by turns with the others."""
    random.seed(writer)
    if linkless:
        refuse_links(errno.EPERM)
    if dies_at is not None:
        at_operation(store.root, dies_at, kill)
    for number in range(TURNS):
        key = f"{writer}.{number}"
        append_jobs(store, NAME, [{"job": key, "run": key}, {"job": f"{key}+", "run": key}])
        acknowledge("job", key)
        member = Member(configuration=key, task="t", limit=None, id=key, folder=key, kind="accuracy")
        write_experiment(store, NAME, store.root / "recipe.toml", TEXT, [member], None)
        acknowledge("member", key)
        time.sleep(random.uniform(0, 0.002))
        if publish_once(store.root / f"{turn}.{number}.json", {"writer": writer, "text": writer * 5000}):
            acknowledge("won", f"{turn}.{number}")


def check(store: Store, acknowledged: Path, counts: Counter[str]) -> None:
    """What was confirmed is there once; what was not is there once or not at all, and whole."""
    counts["looks at the store"] += 1
    lines = [line.split() for line in acknowledged.read_text().splitlines()] if acknowledged.exists() else []
    confirmed = {kind: [key for each, key in lines if each == kind] for kind in ("job", "member", "won")}
    jobs = Counter(job["job"] for job in read_jobs(store, NAME))
    for key in confirmed["job"]:
        if not jobs[key] == jobs[f"{key}+"] == 1:
            raise BrokenPromiseError(f"job {key} stands there {jobs[key]} times")
    torn = [key for key in jobs if not key.endswith("+") and jobs[f"{key}+"] != 1]
    if torn or any(times > 1 for times in jobs.values()):
        raise BrokenPromiseError("a list of jobs is half written or doubled")
    experiment = read_experiment(store, NAME)
    members = {member.id for member in experiment.members} if experiment else set()
    if missing := set(confirmed["member"]) - members:
        raise BrokenPromiseError(f"the experiment has lost {sorted(missing)}")
    if doubled := [name for name, times in Counter(confirmed["won"]).items() if times > 1]:
        raise BrokenPromiseError(f"two writers were told that they had published {doubled}")
    for file in store.root.glob("[0-9]*.json"):
        content = json.loads(file.read_bytes())
        if content["text"] != content["writer"] * 5000:
            raise BrokenPromiseError(f"{file.name} is mixed")
    counts["lines of jobs"] = max(counts["lines of jobs"], sum(jobs.values()))
