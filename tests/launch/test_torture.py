"""A sweep that is killed again and again ends as if nothing had happened."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import psutil
import pytest
from light_jobs import is_alive, wait_until
from torture_sweep import WORKER, sweep
from torture_worker import answer, sample

from unmask.store import RunFolder
from unmask.store.attempt import Sample
from unmask.store.result import AnyResult

SWEEP = WORKER.with_name("torture_sweep.py")


def start(store: Path, items: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SWEEP), str(store), str(items)])


def raw_answers(runs: list[RunFolder]) -> list[tuple[str, str]]:
    """Every answer that was written, by run and key."""
    return [(run.id, line.key) for run in runs for attempt in run.attempts() for line in attempt.answers()]


def workers_of(parent: int) -> list[psutil.Process]:
    try:
        return psutil.Process(parent).children()
    except psutil.NoSuchProcess:
        return []


def kill_something(parent: subprocess.Popen[bytes], luck: random.Random) -> None:
    """The parent, or one of its workers; whatever dies with it is gone when this returns."""
    workers = workers_of(parent.pid)
    if workers and luck.random() < 0.5:
        luck.choice(workers).kill()
        return
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(is_alive(worker.pid) for worker in workers), "orphans to end")


def await_progress(
    runner: subprocess.Popen[bytes], runs: list[RunFolder], luck: random.Random, most: int
) -> None:
    """Until a random number of answers has been added, and a moment longer, or the runner has ended."""
    wanted = len(raw_answers(runs)) + luck.randint(0, most)
    wait_until(lambda: runner.poll() is not None or len(raw_answers(runs)) >= wanted, "work")
    time.sleep(luck.uniform(0, 0.05))


def torture(store: Path, items: int, kills: int, luck: random.Random) -> list[RunFolder]:
    """Kill a sweep at random moments, start it again whenever it has ended, then let it finish."""
    runs = sweep(store, items)
    most = len(runs) * items // (2 * kills)
    killed = 0
    parent = start(store, items)
    try:
        while killed < kills:
            await_progress(parent, runs, luck, most)
            if parent.poll() is None:
                kill_something(parent, luck)
                killed += 1
            if parent.poll() is not None:
                assert not all((run.folder / "result.json").exists() for run in runs), (
                    "done before the last kill"
                )
                parent = start(store, items)
        parent.wait(120)
        assert start(store, items).wait(120) == 0
    finally:
        parent.kill()
        parent.wait()
    return runs


def outcome(runs: list[RunFolder]) -> list[tuple[AnyResult, list[Sample]]]:
    """What does not depend on the way to it; reading checks that every file is whole."""
    found = []
    for run in runs:
        result = run.result()
        assert result is not None
        samples = list(run.attempt(result.attempt).samples())
        found.append((msgspec.structs.replace(result, attempt=None), samples))
        for file in run.folder.rglob("*.json"):
            if not file.name.startswith("."):
                json.loads(file.read_text())
    return found


def undisturbed(store: Path, items: int) -> list[tuple[AnyResult, list[Sample]]]:
    assert start(store, items).wait(120) == 0
    return outcome(sweep(store, items))


def check(runs: list[RunFolder], items: int) -> None:
    """Nothing is lost and every sample is the one that belongs there."""
    for run, (result, samples) in zip(runs, outcome(runs), strict=True):
        by_id = {one.id: one for one in samples}
        assert len(samples) == len(by_id) == result.rows == items
        assert all(by_id[f"item/{item}"] == sample(answer(run.id, item)) for item in range(items))


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_a_sweep_that_is_killed_again_and_again_ends_like_an_undisturbed_one(
    tmp_path: Path, kills: int
) -> None:
    items = 20 if kills == 10 else 60
    runs = torture(tmp_path / "killed", items, kills, random.Random(kills))
    check(runs, items)
    assert outcome(runs) == undisturbed(tmp_path / "calm", items)
    assert set(Counter(raw_answers(runs)).values()) == {1}, "an answer was computed twice"


def test_two_runners_at_once_end_like_one(tmp_path: Path) -> None:
    with start(tmp_path / "both", 20) as one, start(tmp_path / "both", 20) as other:
        assert (one.wait(120), other.wait(120)) == (0, 0)
    runs = sweep(tmp_path / "both", 20)
    check(runs, 20)
    assert outcome(runs) == undisturbed(tmp_path / "calm", 20)


@pytest.mark.slow
def test_two_runners_at_once_that_are_killed_again_and_again(tmp_path: Path) -> None:
    luck = random.Random(2)
    runs = sweep(tmp_path / "both", 60)
    runners = [start(tmp_path / "both", 60) for _ in range(2)]
    try:
        for _ in range(20):
            which = luck.randrange(2)
            await_progress(runners[which], runs, luck, 8)
            kill_something(runners[which], luck)
            for index, runner in enumerate(runners):
                if runner.poll() is not None:
                    runners[index] = start(tmp_path / "both", 60)
        for runner in runners:
            runner.wait(120)
        assert start(tmp_path / "both", 60).wait(120) == 0
    finally:
        for runner in runners:
            runner.kill()
            runner.wait()
    check(runs, 60)
    assert outcome(runs) == undisturbed(tmp_path / "calm", 60)
