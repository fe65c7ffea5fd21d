"""Graphics cards that are known by their data sheets, and what is assumed of each of them: assets/cards.json."""

from functools import cache
from pathlib import Path

import msgspec

FACTS = Path(__file__).parents[1] / "assets" / "cards.json"


class Assumptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is taken to hold on every card."""

    bandwidth_share: float
    """Of the data sheet's bandwidth that reading weights reaches."""
    arithmetic_share: float
    """Of the data sheet's rate that products reach."""
    seconds_an_operation_on_the_host: float
    """In which Python hands one operation to the card."""
    seconds_an_operation_on_the_card: float
    """That a small operation takes beside the bytes and products that are counted."""
    seconds_a_step_of_python: float
    """Between the forwards of two steps."""
    known: str
    """Where these are from."""


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a data sheet."""

    name: str
    title: str
    reported_as: str
    """A part of the name that the driver reports."""
    dtype: str
    """The working dtype that Unmask chooses there."""
    memory_bytes: int
    bytes_per_second: float
    flops_per_second: dict[str, float]
    """Dense products by number format, "16 bit" and "float32"."""


class CardFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    about: str
    assumptions: Assumptions
    cards: tuple[Card, ...]


@cache
def card_facts() -> CardFacts:
    """All of them."""
    return msgspec.json.decode(FACTS.read_bytes(), type=CardFacts)


def card_named(name: str) -> Card:
    """The card of a name that `known_cards` lists."""
    return next(card for card in card_facts().cards if card.name == name)


def known_cards() -> tuple[str, ...]:
    """The names of all cards."""
    return tuple(card.name for card in card_facts().cards)


def card_reported(driver_name: str) -> str | None:
    """The card that a driver's name stands for, where it is known."""
    return next((card.name for card in card_facts().cards if card.reported_as in driver_name), None)
