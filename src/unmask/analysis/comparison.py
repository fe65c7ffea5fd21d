"""Two runs sample by sample: McNemar's table, the difference, and the samples whose outcome flipped."""

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.analysis.records import Entry
from unmask.analysis.samples import damage, difference, disagreement, outcomes
from unmask.analysis.statistics import Difference
from unmask.errors import UnmaskError
from unmask.store.attempt import Sample, read_samples


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

    first: Entry
    second: Entry
    difference: Difference
    changed: int
    """Rows whose answer's text differs, right or wrong."""
    flips: tuple[Flip, ...]


def compare(first: Entry, second: Entry) -> Comparison:
    """Compare two runs; rows that either has not, or that are not the same, are refused."""
    if (first.task, first.limit) != (second.task, second.limit):
        raise UnmaskError(
            f"{first.configuration} is about {_rows(first)} and {second.configuration} about {_rows(second)}; "
            "compare two runs of the same rows."
        )
    for entry in (first, second):
        wrong = damage(entry)
        if wrong is not None:
            raise UnmaskError(wrong)
        contrary = disagreement(entry)
        if contrary is not None:
            raise UnmaskError(f"The figures contradict each other: {contrary}; run it again with `--force`.")
    one, two = outcomes(first), outcomes(second)
    if one and two and one.keys() != two.keys():
        raise UnmaskError(
            f"{first.configuration} and {second.configuration} share only {len(one.keys() & two.keys())} of "
            f"{len(one)} and {len(two)} rows of {first.task}; compare runs of the same rows."
        )
    found = difference(first, second)
    if found is None:
        raise UnmaskError(
            "One of the runs has no samples.jsonl, so they cannot be compared row by row; run it again."
        )
    changed, flips = _flips(first, second)
    return Comparison(first, second, found, changed, tuple(flips))


def _rows(entry: Entry) -> str:
    return entry.task if entry.limit is None else f"{entry.limit:g} rows of {entry.task}"


def _flips(first: Entry, second: Entry) -> tuple[int, list[Flip]]:
    """Only flipped rows keep their texts; of the others a hash is enough."""
    before, after = outcomes(first) or {}, outcomes(second) or {}
    flipped = {name for name, value in before.items() if value != after[name]}
    kept: dict[str, str] = {}
    marks: dict[str, int] = {}
    for sample in _samples(first):
        marks[sample.id] = hash(sample.answer)
        if sample.id in flipped:
            kept[sample.id] = sample.answer
    changed, flips = 0, []
    for sample in _samples(second):
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


def _samples(entry: Entry) -> Iterator[Sample]:
    return read_samples(entry.samples) if entry.samples else iter(())
