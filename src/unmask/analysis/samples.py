"""Rows of two runs side by side, read when they are asked for: memory holds a few runs' outcomes, never all of them."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from unmask.analysis.records import Entry
from unmask.analysis.statistics.paired import Difference, paired_difference
from unmask.errors import UnmaskError
from unmask.store import read_lines

KEPT = 12
"""Runs whose outcomes are remembered, so that a control is not read again for every candidate."""
FEWEST_CLUSTERS = 10
"""With fewer subtasks the spread between them says too little to build an interval on."""


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a samples file."""
    return read_lines(path, "run the run again with `unmask run --force`")


def outcomes(entry: Entry) -> dict[str, float] | None:
    """Each row's value of the headline metric; None for a result without rows on disk."""
    if entry.samples is None:
        return None
    try:
        state = entry.samples.stat()
    except OSError:
        return None
    return _read(entry.samples, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=KEPT)
def _read(path: Path, _changed: int, _size: int) -> dict[str, float]:
    return {
        str(row["id"]): float(row["correct"])
        for row in rows_of(path)
        if "id" in row and isinstance(row.get("correct"), (int, float))
    }


def difference(first: Entry, second: Entry, level: float = 0.95, seed: int = 0) -> Difference | None:
    """The second's accuracy minus the first's, paired by row; None where either has no rows on disk."""
    one = outcomes(first)
    two = outcomes(second) if one is not None else None
    if one is None or two is None or not one:
        return None
    if one.keys() != two.keys():
        shared = len(one.keys() & two.keys())
        raise UnmaskError(
            f"{first.configuration} and {second.configuration} share only {shared} of {len(one)} and {len(two)} "
            f"rows of {first.task}; compare runs of the same rows."
        )
    ids = list(one)
    subtasks = [name.rpartition("/")[0] for name in ids]
    clusters = subtasks if len(set(subtasks)) >= FEWEST_CLUSTERS else None
    return paired_difference([one[i] for i in ids], [two[i] for i in ids], clusters, seed, level)
