"""What the twin of a run has shown: that it answers a few rows as the run does that stands for it, word for word.

A twin decodes its rows in other batches than the run did, which changes rounding: log likelihoods are compared within
it, and in half precision, where a near tie may fall otherwise, a few answers that differ are no proof.
"""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.store.attempt import AnyAnswer, GeneratedAnswer, ScoredGroup
from unmask.store.computation import Computation
from unmask.store.run_folder import RunFolder

REMEMBERED = 1024
"""Twins whose answers are not read again, as long as their files stay."""
HALF = ("float16", "bfloat16")
ROUNDING, HALF_ROUNDING = 1e-4, 0.05
"""How far two log likelihoods of one behaviour may lie from each other, as a share of the larger one or of 1."""


@dataclass(frozen=True, slots=True)
class Twin:
    """Answers of a twin beside those of the run that stands for it."""

    configuration: str
    """That the twin answers as."""
    equal: int
    """Answers that both have given and that are the same."""
    other: int
    """Answers that both have given and that are not."""
    change: str = ""
    """In what the two were computed otherwise, such as on another kind of device, where that may be the reason."""


def twin_of(run: RunFolder) -> Twin | None:
    """The twin of a run that has answered most; None where none has answered anything that the run has answered too."""
    twins = [found for twin in run.twins() if (found := compared(run, twin)) is not None]
    # One that differs must not be outdone by one that does not.
    return max(twins, key=lambda twin: (twin.other, twin.equal), default=None)


def compared(run: RunFolder, twin: RunFolder) -> Twin | None:
    """The answers of a twin beside those of its run; None where the two have none in common."""
    return _remembered(run.folder, twin.folder, (_stamps(run), _stamps(twin)))


def _stamps(run: RunFolder) -> tuple[Hashable, ...]:
    """What changes with the answers of a run."""
    files = [
        attempt.folder / name for attempt in run.attempts() for name in ("answers.jsonl", "computation.json")
    ]
    return tuple((file.name, state.st_mtime_ns, state.st_size) for file in files if (state := _state(file)))


def _state(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None


@lru_cache(maxsize=REMEMBERED)
def _remembered(folder: Path, other: Path, _stamps: Hashable) -> Twin | None:
    run, twin = RunFolder(folder), RunFolder(other)
    try:
        kinds = _kind(run), _kind(twin)
        theirs, own = run.answers(kinds[0]), twin.answers(kinds[1])
    except UnmaskError:
        return None  # a file is damaged, which other guards say
    dtype = next((kind.dtype for kind in kinds if kind is not None and kind.dtype in HALF), None)
    near = ROUNDING if dtype is None else HALF_ROUNDING
    same = [_agree(answer, theirs[key], near) for key, answer in own.items() if key in theirs]
    if not same:
        return None
    equal, others = sum(same), len(same) - sum(same)
    change = kinds[1].change_to(kinds[0]) if kinds[0] and kinds[1] else ""
    if not change and dtype is not None and 0 < others <= equal:
        change = f"{dtype} rounds otherwise in other batches"
    return Twin(name_of(twin), equal, others, change)


def name_of(twin: RunFolder) -> str:
    """The configuration that a twin answers as; the name of its folder where its settings are damaged."""
    try:
        return twin.worker.configuration or twin.name
    except UnmaskError:
        return twin.name


def _kind(run: RunFolder) -> Computation | None:
    """With what the run was computed last."""
    kinds = [attempt.computation() for attempt in run.attempts()]
    return next((kind for kind in reversed(kinds) if kind is not None), None)


def _agree(first: AnyAnswer, second: AnyAnswer, near: float) -> bool:
    if isinstance(first, GeneratedAnswer) and isinstance(second, GeneratedAnswer):
        return (first.text, first.tokens, first.finish) == (second.text, second.tokens, second.finish)
    if isinstance(first, ScoredGroup) and isinstance(second, ScoredGroup):
        return len(first.scores) == len(second.scores) and all(
            greedy == other and abs(score - beside) <= near * max(1.0, abs(score), abs(beside))
            for (score, greedy), (beside, other) in zip(first.scores, second.scores, strict=True)
        )
    return False
