"""What a problem is, how its chain of thought is written, and to which split it belongs."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from typing import Final, Literal

from training.curriculum.wording import Actor, sentence

Split = Literal["train", "held_out"]

HELD_OUT_PERCENT: Final = 6
"""Share of all canonical contents that training never draws."""


class UnsuitableError(Exception):
    """The numbers drawn do not fit the range: draw again."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One sentence of a chain of thought: an equation, what it is about and what it counts."""

    left: int
    operator: str
    right: int
    actor: Actor
    unit: str

    @property
    def result(self) -> int:
        """The value of the equation."""
        return apply_operator(self.left, self.operator, self.right)

    @property
    def equation(self) -> str:
        """The left side of the equation, as in `12+5`."""
        return f"{self.left}{self.operator}{self.right}"

    def text(self, rng: random.Random, result: int | None = None) -> str:
        """The sentence with the equation in the calculator notation of GSM8K; another result makes it a wrong one."""
        shown = self.result if result is None else result
        solved = f"{self.equation}=<<{self.equation}={shown}>>{shown}"
        return sentence(rng, self.actor, solved, self.unit)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A story with its question and the steps that answer it."""

    question: str
    steps: tuple[Step, ...]
    largest: int

    @property
    def answer(self) -> int:
        """The number asked for."""
        return self.steps[-1].result

    @property
    def canonical(self) -> str:
        """The content without its wording: the equations in order."""
        return ";".join(step.equation for step in self.steps)

    def chain(self, rng: random.Random) -> str:
        """The worked answer in one of its many wordings, ending in `#### N`."""
        return " ".join(step.text(rng) for step in self.steps) + f"\n#### {self.answer}"


def apply_operator(left: int, operator: str, right: int) -> int:
    """Compute one equation; division must leave no remainder."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if left % right:
        raise UnsuitableError(f"{left} is no multiple of {right}")
    return left // right


def split_of(canonical: str) -> Split:
    """The one split that may contain this content, decided by its hash alone."""
    digest = hashlib.sha256(canonical.encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % 100 < HELD_OUT_PERCENT else "train"
