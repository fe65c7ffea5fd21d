"""Keeps answers as soon as they are known, so that a run that was cut off continues where it ended.

A line is keyed by the content of its request, never by its place. Answers taken from here are the same
answers, with the same counted work, but they never enter a speed.
"""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from unmask.store.attempt import AnyAnswer, GeneratedAnswer, ScoredGroup


def key_of(*parts: Any) -> str:
    """A digest of the content of a request."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:24]


def _no_write(answer: AnyAnswer) -> None:
    del answer


def _no_progress(done: int, total: int) -> None:
    del done, total


@dataclass(slots=True)
class Journal:
    """Answers of earlier attempts, and where new ones go."""

    answers: dict[str, AnyAnswer] = field(default_factory=dict)
    """By key."""
    write: Callable[[AnyAnswer], None] = _no_write
    progress: Callable[[int, int], None] = _no_progress
    """Called with the number of requests that have their answer, and the number of all."""
    others: Collection[str] = ()
    """Keys of answers that earlier attempts gave by another kind of computation."""
    resumed: int = 0
    """Requests whose answer came from an earlier attempt."""
    computed_again: int = 0
    """Requests whose answer came from an earlier attempt by another kind of computation, and was not taken over."""

    def generated(self, key: str) -> GeneratedAnswer | None:
        """The earlier answer to a request."""
        answer = self.answers.get(key)
        return answer if isinstance(answer, GeneratedAnswer) else None

    def scored(self, key: str) -> ScoredGroup | None:
        """The earlier scores of requests with one prefix."""
        answer = self.answers.get(key)
        return answer if isinstance(answer, ScoredGroup) else None
