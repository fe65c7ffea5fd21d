"""A worker on the real store without a model: `torture_worker.py RUN_FOLDER` answers items and may be killed any time.

Answers depend on the run and the item only, so that any way to the result ends in the same one.
"""

import hashlib
import random
import sys
import time
from pathlib import Path

from unmask.store import RunFolder
from unmask.store.attempt import GeneratedAnswer, Sample
from unmask.store.result import AccuracyResult, Answers


def answer(run: str, item: int) -> GeneratedAnswer:
    """What this run answers to an item."""
    digest = hashlib.sha256(f"{run}/{item}".encode()).hexdigest()
    return GeneratedAnswer(key=f"item/{item}", text=digest, tokens=1, finish="stop", effect=(1, [], [], 0, 0))


def sample(answered: GeneratedAnswer) -> Sample:
    """The sample that an answer becomes."""
    return Sample(id=answered.key, answer=answered.text, correct=int(answered.text, 16) % 2)


def work(run: RunFolder) -> None:
    if run.result() is not None:
        return
    items = run.identity["items"]
    attempt = run.new_attempt()
    known = run.answers()
    for item in range(items):
        key = f"item/{item}"
        if key not in known:
            time.sleep(random.uniform(0, 0.04))
            known[key] = answer(run.id, item)
            attempt.answer(known[key])
            attempt.flush()
        attempt.progress(item + 1, items)
    samples = [sample(known[key]) for key in sorted(known)]
    attempt.write_samples(samples)
    attempt.close()
    run.publish(
        AccuracyResult(
            id=run.id,
            attempt=attempt.number,
            task="light",
            value=sum(one.correct for one in samples) / len(samples),
            rows=len(samples),
            answers=Answers(sha256=hashlib.sha256(repr(samples).encode()).hexdigest()),
        )
    )


if __name__ == "__main__":
    work(RunFolder(Path(sys.argv[1])))
