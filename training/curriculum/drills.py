"""Dense practice for training only: bare equations, and lists of options with many questions on them.

A drill is a list of pieces; only the pieces marked as learned are predicted, because the rest is random.
"""

from __future__ import annotations

import random

from training.curriculum import lexicon
from training.curriculum.choice import LETTERS, expression, lettered
from training.curriculum.problem import apply_operator

Piece = tuple[str, bool]
"""Text, and whether it is to be predicted."""


def draw_equation(rng: random.Random, largest: int) -> tuple[str, int]:
    """One equation with all its numbers up to `largest`: the left side and the result."""
    operator = rng.choice("++---**/")
    if operator in "*/":
        one = rng.randint(2, min(9, largest // 2))
        other = rng.randint(2, largest // one)
        if operator == "/":
            return f"{one * other}/{one}", other
        left, right = rng.sample((one, other), 2)
        return f"{left}*{right}", left * right
    whole = rng.randint(3, largest)
    part = rng.randint(1, whole - 1)
    left = whole - part if operator == "+" else whole
    return f"{left}{operator}{part}", apply_operator(left, operator, part)


def draw_equation_drill(rng: random.Random, largest: int, count: int = 12) -> list[Piece]:
    """Equations one after another, in the notation of the chains."""
    pieces: list[Piece] = []
    for _ in range(count):
        equation, result = draw_equation(rng, largest)
        pieces += [(f"<<{equation}=", False), (f"{result}>>", True)]
    return pieces


def draw_option_drill(rng: random.Random, largest: int, count: int = 10) -> list[Piece]:
    """Four options with their letters, then names, numbers, sums or differences whose letter is to be named."""
    kind = rng.choice(("names", "numbers", "sums"))
    if kind == "names":
        options = [name for name, _ in rng.sample(lexicon.PEOPLE, 4)]
    else:
        options = [str(number) for number in rng.sample(range(2, largest), 4)]
    pieces: list[Piece] = [(lettered(options), False)]
    for _ in range(count):
        index = rng.randrange(4)
        asked = expression(rng, int(options[index]), largest) if kind == "sums" else options[index]
        pieces += [(f"\n{asked}", False), (f" {LETTERS[index]}", True)]
    return pieces
