"""A worker on the real store without a model: `stub_worker.py RUN_FOLDER`; it may be killed at any time.

Answers depend on the run and the item only, so that any way to the result ends in the same one. What the store has
confirmed is noted in the file that ACKNOWLEDGED names, outside of the store: it must never be missing from then on.
"""

import hashlib
import os
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

from unmask.store import RunFolder, Store
from unmask.store.attempt import GeneratedAnswer, Sample
from unmask.store.result import AccuracyResult, Answers

PUBLISHED = "published"


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
    attempt = run.new_attempt()
    with attempt.working():
        items = run.identity["items"]
        known = run.answers()
        for item in range(items):
            key = f"item/{item}"
            if key not in known:
                time.sleep(random.uniform(0, pace))
                known[key] = answer(run.id, item)
                attempt.answer(known[key])
                attempt.flush()
                acknowledge(run.id, key)
            attempt.progress(item + 1, items)
        samples = sorted(map(sample, known.values()), key=lambda each: each.id)
        attempt.write_samples(samples)
        attempt.close()
        if run.publish(result_of(run.id, attempt.number, samples)):
            acknowledge(run.id, PUBLISHED)


def work_in(root: Path, seed: int, items: int, pace: float = 0.0) -> None:
    """Make the run if it is new, and work on it."""
    work(Store.at(root).run(identity(seed, items)), pace)


if __name__ == "__main__":
    if host := os.environ.get("STUB_HOST"):  # a machine whose processes cannot be looked up from here
        socket.gethostname = lambda: host
    work(RunFolder(Path(sys.argv[1])), float(os.environ.get("PACE", "0.04")))
