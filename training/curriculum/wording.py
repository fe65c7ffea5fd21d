"""How a step of an answer is put into words: at random, so that a step has open choices as real text has.

A sentence is `[opener] [subject] [adverb] [verb] [equation] [unit] [tail].` Every choice has a favourite that is
taken in 60 to 80 % of all sentences. The adverb and the tail may be missing, which moves everything behind them.
Knows no arithmetic: the words say nothing about the operation.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Final

Slot = tuple[tuple[str, float], ...]
"""Words with their shares, the favourite first."""

OPENERS: Final[Slot] = (("So", 0.62), ("Thus", 0.18), ("Next", 0.12), ("Here", 0.08))
ADVERBS: Final[Slot] = (("now", 0.60), ("", 0.20), ("then", 0.10), ("just", 0.06), ("already", 0.04))
TAILS: Final[Slot] = (("in total", 0.46), ("", 0.28), ("in all", 0.14), ("so far", 0.07), ("at last", 0.05))
THE: Final[Slot] = (("the", 0.78), ("these", 0.14), ("those", 0.08))
_NAME_SHARE: Final = 0.76


def _verbs(favourite: str, second: str, third: str) -> Slot:
    return ((favourite, 0.77), (second, 0.14), (third, 0.09))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """Whom or what a sentence is about, in several words with their shares, and what it does."""

    subject: Slot
    verbs: Slot


def _person(name: str, pronoun: str) -> Slot:
    return ((name, _NAME_SHARE), (pronoun.lower(), 1 - _NAME_SHARE))


def owner(name: str, pronoun: str) -> Actor:
    """A person who has things."""
    return Actor(subject=_person(name, pronoun), verbs=_verbs("has", "owns", "keeps"))


def worker(name: str, pronoun: str) -> Actor:
    """A person who works hours."""
    return Actor(subject=_person(name, pronoun), verbs=_verbs("works", "gives", "spends"))


def reader(name: str, pronoun: str) -> Actor:
    """A person who reads pages."""
    return Actor(subject=_person(name, pronoun), verbs=_verbs("reads", "finishes", "studies"))


def holders(noun: str) -> Actor:
    """Containers with things in them."""
    return Actor(subject=_with_article(noun), verbs=_verbs("hold", "contain", "carry"))


def goods(noun: str) -> Actor:
    """Things that cost money."""
    return Actor(subject=_with_article(noun), verbs=_verbs("cost", "take", "need"))


def _with_article(noun: str) -> Slot:
    return tuple((f"{article} {noun}", share) for article, share in THE)


RESULT: Final = Actor(
    subject=(("that", 0.76), ("this", 0.15), ("it", 0.09)), verbs=_verbs("makes", "gives", "leaves")
)
"""A number without an owner."""

PEOPLE: Final = Actor(subject=(("they", 0.78), ("all", 0.22)), verbs=_verbs("have", "own", "keep"))
"""Several people together."""


def draw_word(rng: random.Random, slot: Slot) -> str:
    """One choice of a slot; it may be empty."""
    words, shares = zip(*slot, strict=True)
    return str(rng.choices(words, shares)[0])


def sentence(rng: random.Random, actor: Actor, equation: str, unit: str) -> str:
    """A sentence around an equation, worded at random."""
    words = [
        draw_word(rng, OPENERS),
        draw_word(rng, actor.subject),
        draw_word(rng, ADVERBS),
        draw_word(rng, actor.verbs),
        equation,
        unit,
        draw_word(rng, TAILS),
    ]
    return " ".join(word for word in words if word) + "."
