"""Samples of runs: each row's value, what clusters rows, the paired difference of two runs, and who flipped.

A sample is one row, but for metrics that judge several instructions of one prompt: there each instruction is a row, and
the rows of a sample are a cluster. Files are read when they are asked for: memory holds the values of a few runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from unmask.analysis.likeness import must_agree
from unmask.analysis.statistics import (
    LEVEL,
    Difference,
    Interval,
    clustered_interval,
    paired_difference,
    two_sided,
    wilson,
)
from unmask.analysis.table import ConfigurationResult
from unmask.errors import UnmaskError
from unmask.store.attempt import Sample, read_samples

KEPT = 12
"""Runs whose outcomes are remembered, so that a control is not read again for every candidate."""
FEWEST_CLUSTERS = 10
"""With fewer subtasks an interval is not built on the spread between them: it would be unreliable."""

DIFFERENCES = 1024
"""Comparisons that are remembered: guards, verdict and report ask for the same ones."""
MEANS = (
    "exact_match",
    "acc",
    "acc_norm",
    "math_verify",
    "prompt_level_strict_acc",
    "inst_level_strict_acc",
    "inst_level_loose_acc",
    "pass@1",
    "pass_at_1",
)
"""Metrics that are the mean of their rows."""
NEAR = 1e-6
File = tuple[Path, int, int, str | None]
"""A file of samples with its time and size, and the metric that is read."""


@dataclass(frozen=True, slots=True)
class SampleValues:
    """What a file of samples holds."""

    values: dict[str, float]
    """By row: the value of the headline metric, where it has one."""
    clusters: dict[str, str]
    """By row: its sample, where samples hold several rows; else empty."""
    count: int
    """Samples."""


def outcomes(entry: ConfigurationResult) -> dict[str, float] | None:
    """Each row's value of the headline metric; None for a result without sound rows on disk."""
    file = _file(entry)
    return None if file is None or damage(entry) is not None else _read(*file).values


def _clusters(entry: ConfigurationResult) -> dict[str, str]:
    """The sample of each row, where samples hold several rows; else nothing."""
    file = _file(entry)
    return _read(*file).clusters if file is not None and damage(entry) is None else {}


def damage(entry: ConfigurationResult) -> str | None:
    """One sentence on what is wrong with a result's samples file; None if it is sound or was never written."""
    if entry.samples is None:
        return None
    mend = f"run it again with `unmask run RECIPE --force {entry.configuration}`"
    file = _file(entry)
    if file is None:
        return f"{entry.samples} is gone; {mend}."
    try:
        values = _read(*file)
    except UnmaskError as error:
        return f"{str(error).rpartition('; ')[0]}; {mend}."
    if entry.rows is not None and values.count != entry.rows:
        return f"{entry.samples} holds {values.count:,} of {entry.rows:,} rows; {mend}."
    return None


def disagreement(entry: ConfigurationResult) -> str | None:
    """One sentence if the mean of the rows differs from the accuracy of the result; None if they agree."""
    values = outcomes(entry)
    if not values or entry.foreign or (entry.rows is not None and len(_by_sample(entry)) != entry.rows):
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
    of_rows, of_result = (f"{share * 100:.2f} %" for share in (means[0], entry.value))
    return f"the rows of {entry.configuration} come to {of_rows}, its result says {of_result}"


def accuracy_interval(entry: ConfigurationResult, level: float = LEVEL) -> Interval | None:
    """Wilson's interval, no narrower than the clustered one where samples hold several rows.

    From the standard error where the number of rows is not known; None where neither is.
    """
    clusters = _clusters(entry)
    if entry.rows and 0 <= entry.value <= 1:
        plain = wilson(entry.value * entry.rows, entry.rows, level)
        if len(set(clusters.values())) < 2:
            return plain
        values = outcomes(entry) or {}
        wide = clustered_interval(list(values.values()), [clusters[row] for row in values], level)
        return Interval(
            max(0.0, min(plain.low, wide.low)), min(1.0, max(plain.high, wide.high)), level, wide.method
        )
    if entry.stderr is None:
        return None
    half = two_sided(level) * entry.stderr
    return Interval(entry.value - half, entry.value + half, level, "standard error")


def difference(
    first: ConfigurationResult, second: ConfigurationResult, level: float = LEVEL
) -> Difference | None:
    """The second's accuracy minus the first's, paired by row; None where the same rows are not on disk for both."""
    before = outcomes(first)
    after = outcomes(second) if before is not None else None
    if before is None or after is None or not before or before.keys() != after.keys():
        return None
    files = _file(first), _file(second)
    if files[0] is not None and files[1] is not None:
        return _remembered(files[0], files[1], level)
    return _paired(before, after, {}, level)


def _file(entry: ConfigurationResult) -> File | None:
    """The samples file with its time and size, which change when the file is written again, and the metric."""
    if entry.samples is None:
        return None
    try:
        state = entry.samples.stat()
    except OSError:
        return None
    return entry.samples, state.st_mtime_ns, state.st_size, entry.metric


@lru_cache(maxsize=KEPT)
def _read(path: Path, _changed: int, _size: int, metric: str | None) -> SampleValues:
    values: dict[str, float] = {}
    clusters: dict[str, str] = {}
    count = 0
    for sample in read_samples(path):
        count += 1
        if sample.correct is not None:
            values[sample.id] = float(sample.correct)
            continue
        judged = sample.metrics.get(metric or "")
        if isinstance(judged, list) and all(isinstance(value, bool | int | float) for value in judged):
            rows = {f"{sample.id}#{number}": float(value) for number, value in enumerate(judged)}
            values.update(rows)
            clusters.update(dict.fromkeys(rows, sample.id))
    return SampleValues(values, clusters, count)


@lru_cache(maxsize=DIFFERENCES)
def _remembered(first: File, second: File, level: float) -> Difference:
    before, after = _read(*first), _read(*second)
    return _paired(before.values, after.values, before.clusters, level)


def _paired(
    before: dict[str, float], after: dict[str, float], samples: dict[str, str], level: float
) -> Difference:
    ids = list(before)
    subtasks = [name.rpartition("/")[0] for name in ids]
    clusters = [samples.get(row, row) for row in ids] if samples else subtasks
    enough = len(set(clusters)) >= (2 if samples else FEWEST_CLUSTERS)
    return paired_difference(
        [before[i] for i in ids], [after[i] for i in ids], clusters if enough else None, level
    )


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample that one run answers right and the other does not."""

    id: str
    gained: bool
    """Whether the second run is the better one on it."""
    prompt: str
    target: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs of the same rows."""

    first: ConfigurationResult
    second: ConfigurationResult
    difference: Difference
    equal: bool
    """Whether the two must give the same answers, so that their difference has no error."""
    changed: int
    """Rows whose answer's text differs, right or wrong."""
    flips: tuple[Flip, ...]


def compare(first: ConfigurationResult, second: ConfigurationResult) -> Comparison:
    """Compare two runs; refused unless both have the same rows on disk."""
    if (first.task, first.limit) != (second.task, second.limit):
        raise UnmaskError(
            f"{first.configuration} is about {_row_words(first)} and {second.configuration} about "
            f"{_row_words(second)}; compare two runs of the same rows."
        )
    for entry in (first, second):
        wrong = damage(entry)
        if wrong is not None:
            raise UnmaskError(wrong)
        contrary = disagreement(entry)
        if contrary is not None:
            raise UnmaskError(f"The figures contradict each other: {contrary}; run it again with `--force`.")
    before, after = outcomes(first), outcomes(second)
    if before and after and before.keys() != after.keys():
        raise UnmaskError(
            f"{first.configuration} and {second.configuration} share only {len(before.keys() & after.keys())} of "
            f"{len(before)} and {len(after)} rows of {first.task}; compare runs of the same rows."
        )
    pair = difference(first, second)
    if pair is None:
        raise UnmaskError(
            "One of the runs has no samples.jsonl, so they cannot be compared row by row; run it again."
        )
    changed, flips = _flips(first, second)
    return Comparison(first, second, pair, must_agree(first, second), changed, tuple(flips))


def _row_words(entry: ConfigurationResult) -> str:
    return entry.task if entry.limit is None else f"{entry.limit:g} rows of {entry.task}"


def _flips(first: ConfigurationResult, second: ConfigurationResult) -> tuple[int, list[Flip]]:
    """How many answers differ, and the flipped samples. Only flipped samples keep their texts in memory."""
    before, after = _by_sample(first), _by_sample(second)
    flipped = {name for name, value in before.items() if value != after[name]}
    kept: dict[str, str] = {}
    marks: dict[str, int] = {}
    for sample in _samples_on_disk(first):
        marks[sample.id] = hash(sample.answer)
        if sample.id in flipped:
            kept[sample.id] = sample.answer
    changed, flips = 0, []
    for sample in _samples_on_disk(second):
        changed += hash(sample.answer) != marks.get(sample.id)
        if sample.id in flipped:
            flips.append(
                Flip(
                    id=sample.id,
                    gained=after[sample.id] > before[sample.id],
                    prompt=sample.prompt,
                    target=sample.target,
                    first=kept[sample.id],
                    second=sample.answer,
                )
            )
    return changed, flips


def _by_sample(entry: ConfigurationResult) -> dict[str, float]:
    """By sample: the mean of its rows."""
    clusters = _clusters(entry)
    rows: dict[str, list[float]] = {}
    for row, value in (outcomes(entry) or {}).items():
        rows.setdefault(clusters.get(row, row), []).append(value)
    return {sample: fmean(of_sample) for sample, of_sample in rows.items()}


def _samples_on_disk(entry: ConfigurationResult) -> Iterator[Sample]:
    return read_samples(entry.samples) if entry.samples else iter(())
