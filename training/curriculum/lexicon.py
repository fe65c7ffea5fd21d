"""Words and phrases of the stories. Knows no numbers and no arithmetic."""

from __future__ import annotations

from typing import Final

PEOPLE: Final = (
    ("Tom", "He"), ("Anna", "She"), ("Ben", "He"), ("Mia", "She"), ("Sam", "He"), ("Lucy", "She"),
    ("Max", "He"), ("Emma", "She"), ("Leo", "He"), ("Nora", "She"), ("Paul", "He"), ("Ida", "She"),
    ("Omar", "He"), ("Zoe", "She"), ("Jack", "He"), ("Rosa", "She"), ("Finn", "He"), ("Lena", "She"),
)  # fmt: skip
"""Names with the pronoun that may stand for them."""

THINGS: Final = (
    "apples", "pens", "books", "cards", "coins", "stamps", "shells", "marbles", "cookies", "stickers",
    "pencils", "balls", "plums", "eggs", "beads", "stones", "flowers", "candles", "buttons", "toys",
)  # fmt: skip
"""Countable things, in the plural."""

PRICED: Final = (
    ("pen", "pens"), ("book", "books"), ("ball", "balls"), ("card", "cards"), ("toy", "toys"),
    ("candle", "candles"), ("cup", "cups"), ("hat", "hats"), ("cake", "cakes"), ("lamp", "lamps"),
)  # fmt: skip
"""Things with a price, singular and plural."""

HOLDERS: Final = ("boxes", "bags", "packs", "baskets", "jars")
"""Containers that hold the same number of things each."""

STARTS: Final = (
    "{n} has {a} {o}.",
    "{n} starts with {a} {o}.",
    "At first {n} has {a} {o}.",
    "{n} owns {a} {o}.",
    "In the morning {n} has {a} {o}.",
    "There are {a} {o} in the room of {n}.",
)

GAINS: Final = (
    "{n} buys {a} more {o}.",
    "{n} finds {a} more {o}.",
    "Then {n} gets {a} {o} from a friend.",
    "{n} wins {a} {o} in a game.",
    "A teacher gives {n} {a} more {o}.",
    "{n} collects {a} more {o}.",
    "Later {n} receives {a} {o}.",
    "Then {n} adds {a} {o}.",
)

LOSSES: Final = (
    "{n} gives {a} {o} to a friend.",
    "{n} loses {a} {o}.",
    "Then {n} sells {a} {o}.",
    "{n} throws away {a} {o}.",
    "A friend takes {a} of the {o}.",
    "Later {n} drops {a} {o}.",
    "{n} leaves {a} {o} at home.",
    "Then {n} uses up {a} {o}.",
)

MULTIPLES: Final = (
    "Then {n} gets {a} times as many {o} as before.",
    "After a week the number of {o} is {a} times as large.",
    "A prize makes it {a} times as many {o}.",
)

SHARES: Final = (
    "{n} shares the {o} equally among {a} friends and keeps one part.",
    "{n} puts the {o} into {a} equal piles and keeps one pile.",
    "Then {n} splits the {o} into {a} equal parts and keeps one part.",
)

GROUPS_GAINED: Final = (
    "{n} buys {k} {h} with {a} {o} in each.",
    "Then {n} gets {k} {h} of {a} {o} each.",
    "A friend brings {n} {k} {h} with {a} {o} each.",
)

GROUPS_LOST: Final = (
    "{n} sells {k} {h} with {a} {o} in each.",
    "Then {n} gives away {k} {h} of {a} {o} each.",
    "{n} loses {k} {h} with {a} {o} each.",
)

ASIDES: Final = (
    "{n} is {a} years old.",
    "The walk home takes {a} minutes.",
    "It is {a} degrees outside.",
    "{n} lives at number {a}.",
)
"""Sentences with a number that does not matter."""

NOW_QUESTIONS: Final = (
    "How many {o} does {n} have now?",
    "How many {o} does {n} have in the end?",
    "What number of {o} is left for {n}?",
)

WORDS: Final = (
    "red", "blue", "green", "sun", "moon", "star", "tree", "fish", "bird", "house",
    "river", "stone", "lamp", "cake", "ship", "wind",
)  # fmt: skip
"""Plain words for the instruction task."""
