"""A worker on the real store without a model: `torture_worker.py RUN_FOLDER` answers items and may be killed any time.

Answers depend on the run and the item only, so that any way to the result ends in the same one.
"""

import hashlib
import random
import sys
import time
from pathlib import Path
from typing import Any

from unmask.store import RunFolder


def answer(run: str, item: int) -> dict[str, Any]:
    """What this run answers to an item."""
    digest = hashlib.sha256(f"{run}/{item}".encode()).hexdigest()
    return {"text": digest, "correct": int(digest, 16) % 2}


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
            attempt.answer(key, known[key])
            attempt.flush()
        attempt.progress(item + 1, items)
    rows = [{"id": key, **{name: known[key][name] for name in ("text", "correct")}} for key in sorted(known)]
    attempt.samples(rows)
    attempt.close()
    run.publish(
        {
            "schema": 1,
            "id": run.id,
            "attempt": attempt.number,
            "value": sum(row["correct"] for row in rows) / len(rows),
            "rows": len(rows),
            "sha256": hashlib.sha256(repr(rows).encode()).hexdigest(),
        }
    )


if __name__ == "__main__":
    work(RunFolder(Path(sys.argv[1])))
