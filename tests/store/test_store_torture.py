"""Writers that are killed at any moment: every published file is whole, and one writer made it."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unmask.store import Store
from unmask.store.state import state_of

PUBLISHER = """
import os, sys, time
from pathlib import Path
from unmask.store import publish_once
folder, writer, files = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for number in range(files):
    time.sleep(float(os.environ["PACE"]))
    if publish_once(folder / f"{number}.json", {"writer": writer, "text": writer * 50_000}):
        with open(folder / "won", "a") as log:
            log.write(f"{number}\\n")
"""

WORKER = """
import os, sys, time
from pathlib import Path
from unmask.store import Store
from unmask.store.attempt import GeneratedAnswer, Sample
from unmask.store.result import AccuracyResult
run, total = Store.at(sys.argv[1]).open(sys.argv[2]), int(sys.argv[3])
known = run.answers()
attempt = run.new_attempt()
print("ready", flush=True)
for number in range(total):
    if str(number) not in known:
        time.sleep(float(os.environ["PACE"]))
        text = f"answer {number} " * 50
        attempt.answer(GeneratedAnswer(key=str(number), text=text, tokens=1, finish="stop", effect=(1, [], [], 0, 0)))
        if number % 3 == 0:
            attempt.flush()
        attempt.progress(number, total)
attempt.close()
answers = run.answers()
attempt.write_samples(Sample(id=key, answer=answers[key].text) for key in sorted(answers, key=int))
metrics = {"keys": sorted(answers, key=int)}
run.publish(AccuracyResult(id=run.id, task="light", value=1.0, metrics=metrics, attempt=attempt.number))
"""


PACE = 0.01


def start(program: str, *arguments: str, pace: float = 0.0) -> "subprocess.Popen[bytes]":
    """A child that takes at least `pace` seconds for each item, so that a fast machine is not done before a kill."""
    command = [sys.executable, "-c", program, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PACE": str(pace)})
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def kill_some(program: str, arguments: list[list[str]], kills: int, longest: float) -> int:
    """Start all programs at once and kill them after random moments, again and again; then let them finish."""
    chance, hit = random.Random(kills), 0
    for _ in range(kills // len(arguments)):
        children = [start(program, *each, pace=PACE) for each in arguments]
        for child in children:
            time.sleep(chance.random() * longest)
            child.kill()
            child.communicate()
            hit += child.returncode != 0
    for child in [start(program, *each) for each in arguments]:
        child.communicate()
        assert child.returncode == 0
    return hit


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_publications_under_kills_are_whole_and_have_one_winner(tmp_path: Path, kills: int) -> None:
    files = 10 * kills
    writers = [[str(tmp_path), name, str(files)] for name in "ab"]
    assert kill_some(PUBLISHER, writers, kills, 0.02) >= kills // 2, "most kills came too late to matter"
    for number in range(files):
        content = json.loads((tmp_path / f"{number}.json").read_text())
        assert content["text"] == content["writer"] * 50_000
    won = (tmp_path / "won").read_text().split() if (tmp_path / "won").exists() else []
    assert len(won) == len(set(won)), "two writers were told that theirs was published"


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_and_resumed_loses_and_doubles_nothing(store: Store, kills: int) -> None:
    run = store.run({"task": "light"})
    answers = 60 * kills
    arguments = [str(store.root), run.id, str(answers)]
    assert kill_some(WORKER, [arguments, arguments], kills, 0.02) >= kills // 2
    result = run.result()
    assert result is not None
    keys = [str(number) for number in range(answers)]
    assert result.metrics["keys"] == keys
    samples = list(run.attempt(result.attempt).samples())
    assert [sample.id for sample in samples] == keys
    assert all(sample.answer == f"answer {sample.id} " * 50 for sample in samples)
    assert len(run.attempts()) == kills + 2
    assert all(attempt.record().run == run.id for attempt in run.attempts())


def test_a_killed_process_is_seen_as_interrupted_and_a_living_one_as_running(store: Store) -> None:
    run = store.run({"task": "light"})
    program = WORKER.replace("for number", "import time; time.sleep(60)\nfor number", 1)
    child = start(program, str(store.root), run.id, "10")
    try:
        assert state_of(run).status == "running"
    finally:
        child.kill()
    # A zombie does not run any more, though its number is still taken.
    waited = time.monotonic() + 10
    while state_of(run).status == "running" and time.monotonic() < waited:
        time.sleep(0.01)
    assert state_of(run).status == "interrupted"
    child.communicate()
    state = state_of(run)
    assert (state.status, state.attempt) == ("interrupted", "0001")
