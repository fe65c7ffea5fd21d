"""Answers as soon as they are known, so that a run that is cut off goes on where it ended.

A line is keyed by the content of its request, never by its place. Answers taken from here are the same
answers, with the same counted work, but they never enter a speed.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from unmask.cost.effect import Effect

Line = dict[str, Any]


def key_of(*parts: Any) -> str:
    """A key for the content of a request."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of a generation."""

    text: str
    tokens: int
    finish: str
    effect: Effect

    def as_line(self, key: str) -> Line:
        """One line of the journal."""
        return {
            "key": key,
            "text": self.text,
            "tokens": self.tokens,
            "finish": self.finish,
            "effect": self.effect.as_row(),
        }

    @classmethod
    def of_line(cls, line: Line) -> "Answer":
        """Read it back."""
        return cls(line["text"], line["tokens"], line["finish"], Effect.from_row(line["effect"]))


@dataclass(frozen=True, slots=True)
class FamilyScores:
    """What is kept of the scores of requests with one prefix."""

    scores: list[tuple[float, bool]]
    effect: Effect
    inactive: str | None

    def as_line(self, key: str) -> Line:
        """One line of the journal."""
        return {
            "key": key,
            "scores": self.scores,
            "inactive": self.inactive,
            "effect": self.effect.as_row(),
        }

    @classmethod
    def of_line(cls, line: Line) -> "FamilyScores":
        """Read it back."""
        scores = [(float(logprob), bool(greedy)) for logprob, greedy in line["scores"]]
        return cls(scores, Effect.from_row(line["effect"]), line["inactive"])


def _no_write(line: Line) -> None:
    del line


def _no_progress(done: int, total: int) -> None:
    del done, total


@dataclass(slots=True)
class Journal:
    """Lines of earlier attempts, and where new ones go."""

    lines: dict[str, Line] = field(default_factory=dict)
    write: Callable[[Line], None] = _no_write
    progress: Callable[[int, int], None] = _no_progress
    """Told how many requests have their answer, and how many there are."""
    resumed: int = 0
    """Requests whose answer came from an earlier attempt."""

    @classmethod
    def of(
        cls,
        lines: Iterable[Line],
        write: Callable[[Line], None],
        progress: Callable[[int, int], None] = _no_progress,
    ) -> "Journal":
        """A journal that goes on from these lines."""
        return cls({line["key"]: line for line in lines}, write, progress)
