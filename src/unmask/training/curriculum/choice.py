"""Multiple-choice questions: which of four facts answers it, or what a change in a short story leads to."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Final

from unmask.training.curriculum import lexicon
from unmask.training.curriculum.problem import Split, apply_operator, split_of

LETTERS: Final = ("A", "B", "C", "D")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A question with four options, in short form and as text of several tokens."""

    question: str
    short_options: tuple[str, ...]
    text_options: tuple[str, ...]
    correct: int
    kind: str
    canonical: str
    largest: int


def lettered(options: Sequence[str]) -> str:
    """A line for each option with its letter behind it, which is easier to find again than a letter before it."""
    return "\n".join(f"{option} {letter}" for option, letter in zip(options, LETTERS, strict=True))


def draw_choice(rng: random.Random, largest: int, split: Split) -> Choice:
    """Draw a question that belongs to a split."""
    while True:
        draw = rng.choices((_facts_question, _change_question), (0.75, 0.25))[0]
        choice = draw(rng, largest)
        if split_of(choice.canonical) == split:
            return choice


def _change_question(rng: random.Random, largest: int) -> Choice:
    name, pronoun = rng.choice(lexicon.PEOPLE)
    things = rng.choice(lexicon.THINGS)
    operator = rng.choice("+-")
    result, change = _two_parts(rng, largest)
    start = result - change if operator == "+" else result
    result = apply_operator(start, operator, change)
    first = rng.choice(lexicon.STARTS).format(n=name, a=start, o=things)
    phrase = rng.choice(lexicon.GAINS if operator == "+" else lexicon.LOSSES)
    subject = pronoun if phrase.startswith("{n}") and rng.random() < 0.3 else name
    story = f"{first} {phrase.format(n=subject, a=change, o=things)}"
    kind = rng.choice(("result", "start"))
    if kind == "result":
        question, answer = rng.choice(lexicon.NOW_QUESTIONS).format(n=name, o=things), result
    else:
        question, answer = f"How many {things} does {name} have at first?", start
    numbers = _near_numbers(rng, answer, (start, change, start + change, abs(start - change)), largest)
    return Choice(
        question=f"{story} {question}",
        short_options=tuple(str(number) for number in numbers),
        text_options=tuple(f"{number} {things}" for number in numbers),
        correct=numbers.index(answer),
        kind=kind,
        canonical=f"{start}{operator}{change}",
        largest=largest,
    )


def _two_parts(rng: random.Random, largest: int) -> tuple[int, int]:
    whole = rng.randint(4, largest)
    return whole, rng.randint(2, whole - 2)


def _near_numbers(rng: random.Random, answer: int, tempting: tuple[int, ...], largest: int) -> list[int]:
    wrong = {number for number in tempting if 0 < number != answer}
    others = {answer + offset for offset in (-10, -3, -2, -1, 1, 2, 3, 10)}
    spare = [number for number in sorted(others) if 0 < number <= largest + 10 and number not in wrong]
    picked = rng.sample(sorted(wrong), min(2, len(wrong)))
    picked += rng.sample(spare, 3 - len(picked))
    numbers = [answer, *picked]
    rng.shuffle(numbers)
    return numbers


def draw_facts(rng: random.Random, largest: int) -> tuple[list[str], list[tuple[str, int, str]]]:
    """Four lines on what people have, and the questions they answer: wording, index of the line, kind."""
    people = [name for name, _ in rng.sample(lexicon.PEOPLE, 4)]
    amounts = rng.sample(range(2, largest + 1), 4)
    things = rng.sample(lexicon.THINGS, 4)
    if rng.random() < 0.4:
        things = [things[0]] * 4
        questions = [(f"Who has {amounts[index]} {things[0]}?", index, "number") for index in range(4)]
        questions.append((f"Who has the most {things[0]}?", amounts.index(max(amounts)), "ranking"))
        questions.append((f"Who has the fewest {things[0]}?", amounts.index(min(amounts)), "ranking"))
    else:
        questions = [(f"Who has the {things[index]}?", index, "thing") for index in range(4)]
    told = zip(people, amounts, things, strict=True)
    return [f"{name} has {amount} {thing}" for name, amount, thing in told], questions


def _facts_question(rng: random.Random, largest: int) -> Choice:
    lines, questions = draw_facts(rng, largest)
    question, correct, kind = rng.choice(questions)
    numbers = [line.split()[2] for line in lines]
    return Choice(
        question=question,
        short_options=tuple(lines),
        text_options=tuple(lines),
        correct=correct,
        kind=kind,
        canonical=f"{kind}:{','.join(numbers)}:{correct}",
        largest=largest,
    )
