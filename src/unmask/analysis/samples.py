"""Rows of two runs side by side, read when they are asked for: memory holds a few runs' outcomes, never all of them."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from unmask.analysis.records import Entry
from unmask.analysis.statistics import Difference, paired_difference
from unmask.errors import UnmaskError
from unmask.store.attempt import read_samples

KEPT = 12
"""Runs whose outcomes are remembered, so that a control is not read again for every candidate."""
FEWEST_CLUSTERS = 10
"""With fewer subtasks the spread between them says too little to build an interval on."""

DIFFERENCES = 1024
"""Comparisons that are remembered: guards, verdict and report ask for the same ones."""
MEANS = ("exact_match", "acc", "acc_norm", "math_verify", "prompt_level_strict_acc", "pass@1", "pass_at_1")
"""Metrics that are the mean of their rows."""
NEAR = 1e-6
File = tuple[Path, int, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """What a file of samples holds."""

    values: dict[str, float]
    """By row: the value of the headline metric, where it has one."""
    count: int


def outcomes(entry: Entry) -> dict[str, float] | None:
    """Each row's value of the headline metric; None for a result without sound rows on disk."""
    file = _file(entry)
    return None if file is None or damage(entry) is not None else _read(*file).values


def damage(entry: Entry) -> str | None:
    """What is wrong with the file of an entry's rows, in one sentence; None where it is sound, or was never written."""
    if entry.samples is None:
        return None
    mend = f"run it again with `unmask run RECIPE --force {entry.configuration}`"
    file = _file(entry)
    if file is None:
        return f"{entry.samples} is gone; {mend}."
    try:
        found = _read(*file)
    except UnmaskError as error:
        return f"{str(error).rpartition('; ')[0]}; {mend}."
    if entry.rows is not None and found.count != entry.rows:
        return f"{entry.samples} holds {found.count:,} of {entry.rows:,} rows; {mend}."
    return None


def disagreement(entry: Entry) -> str | None:
    """That the rows have another mean than the result says, in one sentence; None where they agree."""
    values = outcomes(entry)
    if not values or entry.foreign or (entry.rows is not None and len(values) != entry.rows):
        return None
    name = str(entry.metric or "").partition(",")[0]
    if entry.metric is not None and name not in MEANS:
        return None
    by_subtask: dict[str, list[float]] = {}
    for row, value in values.items():
        by_subtask.setdefault(row.rpartition("/")[0], []).append(value)
    means = (fmean(values.values()), fmean(fmean(some) for some in by_subtask.values()))
    if any(abs(mean - entry.value) < NEAR for mean in means):
        return None
    told, said = (f"{share * 100:.2f} %" for share in (means[0], entry.value))
    return f"the rows of {entry.configuration} come to {told}, its result says {said}"


def difference(first: Entry, second: Entry, level: float = 0.95, seed: int = 0) -> Difference | None:
    """The second's accuracy minus the first's, paired by row; None where the same rows are not on disk for both."""
    one = outcomes(first)
    two = outcomes(second) if one is not None else None
    if one is None or two is None or not one or one.keys() != two.keys():
        return None
    files = _file(first), _file(second)
    if files[0] is not None and files[1] is not None:
        return _remembered(files[0], files[1], level, seed)
    return _paired(one, two, level, seed)


def _file(entry: Entry) -> File | None:
    """A file and what changes when it is written again."""
    if entry.samples is None:
        return None
    try:
        state = entry.samples.stat()
    except OSError:
        return None
    return entry.samples, state.st_mtime_ns, state.st_size


@lru_cache(maxsize=KEPT)
def _read(path: Path, _changed: int, _size: int) -> Rows:
    found: dict[str, float] = {}
    count = 0
    for sample in read_samples(path):
        count += 1
        if sample.correct is not None:
            found[sample.id] = float(sample.correct)
    return Rows(found, count)


@lru_cache(maxsize=DIFFERENCES)
def _remembered(first: File, second: File, level: float, seed: int) -> Difference:
    return _paired(_read(*first).values, _read(*second).values, level, seed)


def _paired(one: dict[str, float], two: dict[str, float], level: float, seed: int) -> Difference:
    ids = list(one)
    subtasks = [name.rpartition("/")[0] for name in ids]
    clusters = subtasks if len(set(subtasks)) >= FEWEST_CLUSTERS else None
    return paired_difference([one[i] for i in ids], [two[i] for i in ids], clusters, seed, level)
