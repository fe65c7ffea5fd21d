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
        instruction = rng.choice((_count, _repeat, _reverse, _pick))(rng)
        if split_of(instruction.canonical) == split:
            return instruction


def _count(rng: random.Random) -> Instruction:
    low = rng.randint(1, 80)
    high = low + rng.randint(4, 14)
    numbers = [str(number) for number in range(low, high + 1)]
    if rng.random() < 0.5:
        return Instruction(order=f"Count from {low} to {high}.", reply=f"{', '.join(numbers)}.")
    return Instruction(order=f"Count down from {high} to {low}.", reply=f"{', '.join(reversed(numbers))}.")


def _repeat(rng: random.Random) -> Instruction:
    one, other = rng.sample(lexicon.WORDS, 2)
    first, second = rng.randint(1, 6), rng.randint(1, 6)
    return Instruction(
        order=f"Write the word {one} {first} times and the word {other} {second} times.",
        reply=" ".join([one] * first + [other] * second) + ".",
    )


def _reverse(rng: random.Random) -> Instruction:
    words = rng.sample(lexicon.WORDS, rng.randint(3, 6))
    backwards = ", ".join(reversed(words))
    return Instruction(order=f"Write these words in reverse: {', '.join(words)}.", reply=f"{backwards}.")


def _pick(rng: random.Random) -> Instruction:
    words = rng.sample(lexicon.WORDS, rng.randint(3, 7))
    place, index = rng.choice((("first", 0), ("last", -1)))
    return Instruction(
        order=f"Which word comes {place}: {', '.join(words)}?", reply=f"The {place} word is {words[index]}."
    )
