"""A small task in instruction format: count, repeat, reverse, or pick from a list."""

from __future__ import annotations

import dataclasses
import random

from training.curriculum import lexicon
from training.curriculum.problem import Split, split_of


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """An order and the reply that fulfils it."""

    order: str
    reply: str

    @property
    def canonical(self) -> str:
        """The order itself: it has no wording to vary."""
        return self.order


def draw_instruction(rng: random.Random, split: Split) -> Instruction:
    """Draw an instruction that belongs to a split."""
    while True:
        instruction = rng.choice((_count, _repeat, _reverse, _last))(rng)
        if split_of(instruction.canonical) == split:
            return instruction


def _count(rng: random.Random) -> Instruction:
    first = rng.randint(1, 80)
    last = first + rng.randint(4, 14)
    numbers = ", ".join(str(number) for number in range(first, last + 1))
    return Instruction(order=f"Count from {first} to {last}.", reply=f"{numbers}.")


def _repeat(rng: random.Random) -> Instruction:
    word, times = rng.choice(lexicon.WORDS), rng.randint(2, 9)
    return Instruction(order=f"Write the word {word} {times} times.", reply=" ".join([word] * times) + ".")


def _reverse(rng: random.Random) -> Instruction:
    words = rng.sample(lexicon.WORDS, rng.randint(3, 7))
    backwards = ", ".join(reversed(words))
    return Instruction(order=f"Write these words in reverse: {', '.join(words)}.", reply=f"{backwards}.")


def _last(rng: random.Random) -> Instruction:
    words = rng.sample(lexicon.WORDS, rng.randint(3, 7))
    return Instruction(
        order=f"Which word comes last: {', '.join(words)}?", reply=f"The last word is {words[-1]}."
    )
