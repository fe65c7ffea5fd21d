"""How long work must take on a device at the very least: the slower of its arithmetic and its memory.

The figures of named devices are those of their makers' data sheets (dense half-precision products,
memory bandwidth), so they bound what is possible and predict nothing else.
"""

from dataclasses import dataclass

from unmask.cost.cards import card_facts
from unmask.cost.price import price_of
from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger


@dataclass(frozen=True, slots=True)
class Device:
    """Peak rates of a device."""

    name: str
    flops_per_second: float
    bytes_per_second: float
    element_bytes: int = 2


DEVICES = {
    card.name: Device(card.name, card.flops_per_second["16 bit"], card.bytes_per_second)
    for card in card_facts().cards
}


def least_seconds(ledger: Ledger, shape: ModelShape, device: Device) -> float:
    """Sum over forwards of the larger of compute time and memory time."""
    seconds = 0.0
    for work, count in ledger.entries.items():
        price = price_of(work, shape, device.element_bytes)
        seconds += count * max(price.flops / device.flops_per_second, price.bytes / device.bytes_per_second)
    return seconds
