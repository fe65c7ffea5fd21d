"""Multiple-choice questions: a letter to find behind a fact, and the sentence that ends a worked answer."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Final

from training.curriculum import lexicon
from training.curriculum.problem import Problem, Split, Step, UnsuitableError, split_of
from training.curriculum.stories import draw_problem

LETTERS: Final = ("A", "B", "C", "D")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A prompt and four options, one of them right."""

    prompt: str
    options: tuple[str, ...]
    correct: int
    kind: str
    canonical: str
    largest: int


def lettered(options: Sequence[str]) -> str:
    """A line for each option with its letter behind it, which is easier to find again than a letter before it."""
    return "\n".join(f"{option} {letter}" for option, letter in zip(options, LETTERS, strict=True))


def draw_choice(rng: random.Random, largest: int, split: Split) -> Choice:
    """Draw a question on four facts, to be answered by a letter: by thing, by number, or by a sum worked out unseen."""
    while True:
        kind = rng.choices(("thing", "number", "sum"), (0.15, 0.7, 0.15))[0]
        people = [name for name, _ in rng.sample(lexicon.PEOPLE, 4)]
        amounts = rng.sample(range(2, largest), 4)
        things = rng.sample(lexicon.THINGS, 4)
        correct = rng.randrange(4)
        lines = [f"{name} has {amount}" for name, amount in zip(people, amounts, strict=True)]
        if kind == "thing":
            lines = [f"{line} {thing}" for line, thing in zip(lines, things, strict=True)]
        number = amounts[correct]
        asked = {"thing": things[correct], "number": str(number)}.get(kind) or expression(
            rng, number, largest
        )
        canonical = asked if kind == "sum" else f"{kind}:{amounts}:{correct}"
        if split_of(canonical) == split:
            return Choice(
                prompt=f"{lettered(lines)}\nAnswer for {asked}",
                options=LETTERS,
                correct=correct,
                kind=kind,
                canonical=canonical,
                largest=largest,
            )


def expression(rng: random.Random, result: int, largest: int) -> str:
    """A sum or a difference with a given result and numbers up to `largest`."""
    if rng.random() < 0.5:
        part = rng.randint(1, result - 1)
        return f"{result - part}+{part}"
    part = rng.randint(1, largest - result)
    return f"{result + part}-{part}"


def draw_text_choice(rng: random.Random, largest: int, split: Split) -> Choice:
    """Draw a word problem with its answer but for the last sentence; the options are the right and three wrong ones.

    Each option has a wording of its own, as the options of a published benchmark have: the content has to outweigh it.
    """
    while True:
        problem = draw_problem(rng, largest, split)
        wrong = _wrong_ends(problem.steps[-1], largest)
        if len(wrong) >= 3:
            return _text_choice(rng, problem, rng.sample(wrong, 3))


_End = tuple[Step, int]
"""A last step and the result that it claims."""


def _text_choice(rng: random.Random, problem: Problem, wrong: list[_End]) -> Choice:
    last = problem.steps[-1]
    ends = rng.sample([(last, last.result), *wrong], 4)
    begun = " ".join(step.text(rng) for step in problem.steps[:-1])
    return Choice(
        prompt=f"Question: {problem.question}\nAnswer: {begun}",
        options=tuple(step.text(rng, result) for step, result in ends),
        correct=ends.index((last, last.result)),
        kind=f"{len(problem.steps)} steps",
        canonical=problem.canonical,
        largest=problem.largest,
    )


def _wrong_ends(step: Step, largest: int) -> list[_End]:
    """Ends that look like the right one: another operation, another number, or a wrong result."""
    changed = [
        dataclasses.replace(step, operator=operator) for operator in "+-*/" if operator != step.operator
    ]
    changed += [dataclasses.replace(step, right=step.right + offset) for offset in (-2, -1, 1, 2)]
    ends = []
    for other in changed:
        try:
            if other.right > 0 and 0 < other.result <= largest:
                ends.append((other, other.result))
        except UnsuitableError:
            continue
    results = [step.result + offset for offset in (-10, -1, 1, 10)]
    return ends + [(step, result) for result in results if 0 < result <= largest]
