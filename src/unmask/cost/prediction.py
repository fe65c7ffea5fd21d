"""How long counted work should take on a named card: bytes, operations of arithmetic, and operations that are launched.

A prediction, not a measurement: the card's figures are its data sheet's, and what is assumed of every card stands
beside them (assets/cards.json). `unmask gpu-check` holds it against a real card.

A forward takes as long as the slower of two: the card, which reads weights or multiplies and spends a little on every
operation, and the host, which hands operations over one by one. The requests of a batch are taken to be in phase: they
share every forward, so weights are read once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from unmask.cost.cards import Card, card_facts
from unmask.cost.price import price_of
from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger, Work

ATTENTION_OPERATIONS, MLP_OPERATIONS = 12, 8
"""What one layer's branches launch in half precision, casts and the addition to the stream included."""
GATHERED_OPERATIONS = 2
"""What a layer's attention launches besides where requests share a forward."""
FORWARD_OPERATIONS = 20
"""Embedding, head, predictions and the copies between the host and the card."""
HALF = 2
"""Bytes of an element."""
BoundBy = Literal["memory", "arithmetic", "host"]


@dataclass(frozen=True, slots=True)
class Load:
    """What some forwards ask of a card."""

    forwards: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    operations: float = 0.0
    """Operations that are launched."""

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.forwards + other.forwards,
            self.bytes + other.bytes,
            self.flops + other.flops,
            self.operations + other.operations,
        )

    def times(self, count: int) -> "Load":
        """The load of so many of them."""
        return Load(self.forwards * count, self.bytes * count, self.flops * count, self.operations * count)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds that a load should take."""

    seconds: float
    bound_by: BoundBy
    limit_seconds: float
    """At the data sheet's rates, if nothing but bytes and products cost anything."""

    @property
    def share(self) -> float:
        """The part of the limit's speed that is reached."""
        return self.limit_seconds / self.seconds


def load_of(work: Work, shape: ModelShape, batch: int = 1, element_bytes: int = HALF) -> Load:
    """One forward that requests share which are all at this step."""
    price = price_of(work, shape, element_bytes)
    weights = shape.head_weights if work.reads else 0
    operations = FORWARD_OPERATIONS
    for layer in range(shape.layers):
        if work.attention_rows(layer):
            weights += shape.attention_weights
            operations += ATTENTION_OPERATIONS + GATHERED_OPERATIONS * (batch > 1)
        if work.mlp_rows(layer):
            weights += shape.mlp_weights
            operations += MLP_OPERATIONS
    read = weights * element_bytes
    return Load(1, read + batch * (price.bytes - read), batch * price.flops, operations)


def predict(load: Load, card: Card, format_: str = "16 bit") -> Prediction:
    """The time of a load on a card."""
    assumed = card_facts().assumptions
    rate = card.flops_per_second[format_]
    reading = load.bytes / card.bytes_per_second
    multiplying = load.flops / rate
    work = max(reading / assumed.bandwidth_share, multiplying / assumed.arithmetic_share)
    on_card = work + load.operations * assumed.seconds_an_operation_on_the_card
    on_host = load.operations * assumed.seconds_an_operation_on_the_host
    bound: BoundBy = "host"
    if on_card >= on_host:
        by_memory = reading / assumed.bandwidth_share >= multiplying / assumed.arithmetic_share
        bound = "memory" if by_memory else "arithmetic"
    seconds = max(on_card, on_host) + load.forwards * assumed.seconds_a_step_of_python
    return Prediction(seconds, bound, max(reading, multiplying))


def predicted_seconds(ledger: Ledger, shape: ModelShape, card: Card, batch: int = 1) -> float:
    """All forwards of a ledger, taken by a batch of such requests in phase."""
    return sum(
        count * predict(load_of(work, shape, batch), card).seconds for work, count in ledger.entries.items()
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """What a result counts of the forwards behind it: sums by kind, and calls of each layer over all kinds."""

    forwards: Mapping[str, int]
    branch_rows: Mapping[str, int]
    layer_calls: Sequence[int]
    flops: int


def seconds_of_counts(counts: Counted, shape: ModelShape, card: Card) -> float:
    """The time of counted forwards, each request alone.

    Prefills and commits compute every layer, so what is left of the layers' calls belongs to the denoising steps. Keys
    that attention reads are left out: beside the weights of one request they are a hundredth or less.
    """
    whole = {kind: counts.forwards.get(kind, 0) for kind in ("prefill", "commit")}
    steps = sum(counts.forwards.values()) - sum(whole.values())
    denoising = sum(counts.layer_calls) - shape.layers * sum(whole.values())
    rows = sum(counts.branch_rows.values()) or 1
    in_whole = {kind: counts.branch_rows.get(kind, 0) for kind in whole}
    parts = [(whole[kind], whole[kind] * shape.layers, in_whole[kind]) for kind in whole]
    parts.append((steps, max(0, denoising), rows - sum(in_whole.values())))
    layer = shape.attention_weights + shape.mlp_weights
    return sum(
        predict(
            Load(
                forwards,
                (calls * layer + forwards * shape.head_weights) * HALF,
                counts.flops * share / rows,
                calls * (ATTENTION_OPERATIONS + MLP_OPERATIONS) + forwards * FORWARD_OPERATIONS,
            ),
            card,
        ).seconds
        for forwards, calls, share in parts
    )
