"""Where replays are kept and whether they still belong to their run. Needs no torch."""

import re
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.store import RunFolder, read_json
from unmask.store.result import AccuracyResult

SCHEMA = 1
FOLDER = "replays"


def replay_file(run: RunFolder, sample: str) -> Path:
    """Where the replay of a sample is kept."""
    return run.folder / FOLDER / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', sample)[:100]}.json"


def stored_replay(run: RunFolder, sample: str) -> dict[str, Any] | None:
    """A replay that belongs to the run's present result; None where it must be made."""
    file = replay_file(run, sample)
    if not file.exists():
        return None
    try:
        found = read_json(file)
    except UnmaskError:
        return None
    same = found.get("schema") == SCHEMA and found.get("sample") == sample
    return found if same and found.get("of") == belongs_to(run) else None


def belongs_to(run: RunFolder) -> dict[str, Any]:
    """What a replay is a replay of: a run that was executed again has other answers."""
    result = run.result()
    if not isinstance(result, AccuracyResult):
        return {"attempt": None, "answers": None}
    return {"attempt": result.attempt, "answers": result.answers.sha256}
