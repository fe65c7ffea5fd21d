"""Families of word problems. Each function draws one problem or raises `UnsuitableError` to be called again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from training.curriculum import lexicon
from training.curriculum.problem import Problem, Split, Step, UnsuitableError, split_of
from training.curriculum.wording import PEOPLE, RESULT, Actor, goods, holders, owner, reader, worker


class Story:
    """Collects the sentences and steps of one problem and keeps every number within the range."""

    def __init__(self, rng: random.Random, largest: int) -> None:
        self.rng = rng
        self.largest = largest
        self.sentences: list[str] = []
        self.steps: list[Step] = []

    def say(self, sentence: str) -> None:
        """Add a sentence of the question."""
        self.sentences.append(sentence)

    def work(self, actor: Actor, left: int, operator: str, right: int, unit: str) -> int:
        """Add a step of the answer and return its result."""
        step = Step(left=left, operator=operator, right=right, actor=actor, unit=unit)
        if not (0 < step.result <= self.largest and 0 < left <= self.largest and 0 < right <= self.largest):
            raise UnsuitableError(step.equation)
        self.steps.append(step)
        return step.result

    def number(self, low: int, high: int) -> int:
        """A number between two bounds that also keeps to the range."""
        if high < low:
            raise UnsuitableError(f"{low} to {high}")
        return self.rng.randint(low, min(high, self.largest))

    def finish(self, question: str) -> Problem:
        """Close the story with its question."""
        return Problem(
            question=" ".join([*self.sentences, question]), steps=tuple(self.steps), largest=self.largest
        )


def _factor(story: Story, current: int) -> int:
    return story.number(2, min(9, story.largest // current))


def _divisor(story: Story, current: int) -> int:
    divisors = [d for d in range(2, 10) if current % d == 0 and current > d]
    if not divisors:
        raise UnsuitableError(f"{current} has no divisor")
    return story.rng.choice(divisors)


def running_amount(rng: random.Random, largest: int, steps: int) -> Problem:
    """Somebody has a number of things, and events change it."""
    story = Story(rng, largest)
    name, pronoun = rng.choice(lexicon.PEOPLE)
    things = rng.choice(lexicon.THINGS)
    current = story.number(2, largest)
    story.say(rng.choice(lexicon.STARTS).format(n=name, a=current, o=things))
    if rng.random() < 0.15:
        story.say(rng.choice(lexicon.ASIDES).format(n=name, a=story.number(2, largest)))
    while len(story.steps) < steps:
        who = pronoun if rng.random() < 0.3 else name
        kinds = ["gain", "loss", "multiple", "share"]
        if len(story.steps) + 2 <= steps:
            kinds += ["groups_gained", "groups_lost"]
        current = _event(story, rng.choice(kinds), current, (name, pronoun), who, things)
    return story.finish(rng.choice(lexicon.NOW_QUESTIONS).format(n=name, o=things))


def _event(story: Story, kind: str, current: int, person: tuple[str, str], who: str, things: str) -> int:
    rng, name = story.rng, person[0]

    def tell(phrases: tuple[str, ...], amount: int, **more: object) -> None:
        phrase = rng.choice(phrases)
        subject = who if phrase.startswith("{n}") else name
        story.say(phrase.format(n=subject, a=amount, o=things, **more))

    if kind == "gain":
        amount = story.number(2, story.largest - current)
        tell(lexicon.GAINS, amount)
        return story.work(owner(*person), current, "+", amount, things)
    if kind == "loss":
        amount = story.number(2, current - 1)
        tell(lexicon.LOSSES, amount)
        return story.work(owner(*person), current, "-", amount, things)
    if kind == "multiple":
        amount = _factor(story, current)
        tell(lexicon.MULTIPLES, amount)
        return story.work(RESULT, current, "*", amount, things)
    if kind == "share":
        amount = _divisor(story, current)
        tell(lexicon.SHARES, amount)
        return story.work(RESULT, current, "/", amount, things)
    return _groups(story, kind, current, person, things, tell)


def _groups(
    story: Story, kind: str, current: int, person: tuple[str, str], things: str, tell: Callable[..., None]
) -> int:
    gained = kind == "groups_gained"
    room = story.largest - current if gained else current - 1
    count = story.number(2, min(9, room // 2))
    each = story.number(2, room // count)
    holder = story.rng.choice(lexicon.HOLDERS)
    tell(lexicon.GROUPS_GAINED if gained else lexicon.GROUPS_LOST, each, k=count, h=holder)
    total = story.work(holders(holder), count, "*", each, things)
    return story.work(owner(*person), current, "+" if gained else "-", total, things)


def comparison(rng: random.Random, largest: int, steps: int) -> Problem:
    """Two or three people have numbers of things that are told relative to each other."""
    story = Story(rng, largest)
    persons = rng.sample(lexicon.PEOPLE, 3)
    people = [name for name, _ in persons]
    things = rng.choice(lexicon.THINGS)
    amounts = [story.number(2, largest)]
    story.say(f"{people[0]} has {amounts[0]} {things}.")
    relations = {2: 1, 3: rng.choice((1, 2)), 4: 2}[steps]
    for index in range(1, relations + 1):
        amounts.append(_relation(story, persons[index], people[index - 1], amounts[-1], things))
    if steps == 3 and relations == 2:
        story.work(PEOPLE, amounts[1], "+", amounts[2], things)
        return story.finish(f"How many {things} do {people[1]} and {people[2]} have together?")
    total = amounts[0]
    for amount in amounts[1:]:
        total = story.work(PEOPLE, total, "+", amount, things)
    if len(story.steps) < steps:
        amount = story.number(2, total - 1)
        story.say(f"They give {amount} {things} to a school.")
        story.work(PEOPLE, total, "-", amount, things)
        return story.finish(f"How many {things} do they have left?")
    return story.finish(f"How many {things} do they have together?")


def _relation(story: Story, person: tuple[str, str], other: str, amount: int, things: str) -> int:
    name = person[0]
    kind = story.rng.choice(("more", "fewer", "times"))
    if kind == "more":
        change = story.number(2, story.largest - amount)
        story.say(f"{name} has {change} more {things} than {other}.")
        return story.work(owner(*person), amount, "+", change, things)
    if kind == "fewer":
        change = story.number(2, amount - 1)
        story.say(f"{name} has {change} fewer {things} than {other}.")
        return story.work(owner(*person), amount, "-", change, things)
    change = _factor(story, amount)
    story.say(f"{name} has {change} times as many {things} as {other}.")
    return story.work(owner(*person), amount, "*", change, things)


def shopping(rng: random.Random, largest: int, steps: int) -> Problem:
    """Things with prices are bought, perhaps from a sum of money."""
    story = Story(rng, largest)
    name, pronoun = rng.choice(lexicon.PEOPLE)
    (one, ones), (other, others) = rng.sample(lexicon.PRICED, 2)
    price = story.number(2, largest // 2)
    count = story.number(2, min(9, largest // price))
    money = story.number(10, largest)
    if steps == 2:
        story.say(f"A {one} costs {price} dollars. {name} has {money} dollars and buys {count} {ones}.")
        paid = story.work(goods(ones), count, "*", price, "dollars")
        story.work(owner(name, pronoun), money, "-", paid, "dollars")
        return story.finish(f"How many dollars does {name} have left?")
    second = story.number(2, largest // 2)
    others_count = story.number(2, min(9, largest // second))
    story.say(f"A {one} costs {price} dollars and a {other} costs {second} dollars.")
    story.say(f"{name} buys {count} {ones} and {others_count} {others}.")
    paid = story.work(goods(ones), count, "*", price, "dollars")
    also = story.work(goods(others), others_count, "*", second, "dollars")
    total = story.work(RESULT, paid, "+", also, "dollars")
    if steps == 3:
        return story.finish(f"How many dollars does {name} pay?")
    story.say(f"{pronoun} pays with {money} dollars.")
    story.work(owner(name, pronoun), money, "-", total, "dollars")
    return story.finish(f"How many dollars does {name} get back?")


def wages(rng: random.Random, largest: int, steps: int) -> Problem:
    """Somebody works by the hour, and may spend or share what was earned."""
    story = Story(rng, largest)
    name, pronoun = rng.choice(lexicon.PEOPLE)
    first, second = story.number(2, 9), story.number(2, 9)
    rate = story.number(2, largest // (first + second))
    story.say(f"{name} earns {rate} dollars an hour.")
    story.say(f"{pronoun} works {first} hours on Monday and {second} hours on Tuesday.")
    hours = story.work(worker(name, pronoun), first, "+", second, "hours")
    earned = story.work(RESULT, hours, "*", rate, "dollars")
    if steps == 2:
        return story.finish(f"How many dollars does {name} earn?")
    spent = story.number(2, earned - 1)
    story.say(f"{pronoun} spends {spent} dollars on food.")
    left = story.work(owner(name, pronoun), earned, "-", spent, "dollars")
    if steps == 4:
        gift = story.number(2, largest - left)
        story.say(f"Then {name} gets {gift} dollars as a gift.")
        story.work(owner(name, pronoun), left, "+", gift, "dollars")
    return story.finish(f"How many dollars does {name} have in the end?")


def reading(rng: random.Random, largest: int, steps: int) -> Problem:
    """A book is read page by page."""
    story = Story(rng, largest)
    name, pronoun = rng.choice(lexicon.PEOPLE)
    pages = story.number(12, largest)
    days = story.number(2, 7)
    daily = story.number(2, (pages - 1) // days)
    story.say(f"A book has {pages} pages. {name} reads {daily} pages a day for {days} days.")
    done = story.work(reader(name, pronoun), daily, "*", days, "pages")
    rest = story.work(RESULT, pages, "-", done, "pages")
    if steps == 2:
        return story.finish("How many pages are left?")
    if steps == 4:
        more = story.number(2, rest - 1)
        story.say(f"On Sunday {name} reads {more} more pages.")
        rest = story.work(RESULT, rest, "-", more, "pages")
    days_left = _divisor(story, rest)
    story.say(f"{pronoun} wants to read the rest in {days_left} days.")
    story.work(reader(name, pronoun), rest, "/", days_left, "pages")
    return story.finish("How many pages is that a day?")


FAMILIES: Final = (
    (running_amount, 5), (comparison, 3), (shopping, 2), (wages, 1), (reading, 1),
)  # fmt: skip
"""The families with their shares."""

_TRIES_PER_FAMILY: Final = 200


def draw_problem(rng: random.Random, largest: int, split: Split) -> Problem:
    """Draw a problem of two to four steps with numbers up to `largest` that belongs to a split."""
    families = [family for family, share in FAMILIES for _ in range(share)]
    while True:
        steps, family = rng.choice((2, 3, 4)), rng.choice(families)
        for _ in range(_TRIES_PER_FAMILY):
            try:
                problem = family(rng, largest, steps)
            except UnsuitableError:
                continue
            if split_of(problem.canonical) == split:
                return problem
