"""What counted work costs: floating-point operations, and bytes that must be read or written.

Matrix products and attention only (norms, activations and sampling are a few thousandths of it), and
every request priced as if it ran alone, so that a price does not depend on the batch.
"""

from dataclasses import dataclass

from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger, Work


@dataclass(frozen=True, slots=True)
class Price:
    """Operations and traffic of some work."""

    flops: int
    bytes: int

    def __add__(self, other: "Price") -> "Price":
        return Price(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, count: int) -> "Price":
        """The price of doing it `count` times."""
        return Price(self.flops * count, self.bytes * count)


def price_of(work: Work, shape: ModelShape, element_bytes: int) -> Price:
    """Price one forward."""
    flops = 2 * work.reads * shape.head_weights
    elements = shape.head_weights if work.reads else 0
    for layer in range(shape.layers):
        attention, mlp = work.attention_rows(layer), work.mlp_rows(layer)
        pairs = work.pairs * attention // work.rows
        flops += 2 * (attention * shape.attention_weights + mlp * shape.mlp_weights)
        flops += 4 * pairs * shape.heads * shape.head_dim
        if attention:
            keys_read = work.pairs // work.rows
            elements += shape.attention_weights + (keys_read + attention) * shape.kv_width
        if mlp:
            elements += shape.mlp_weights
    return Price(flops, elements * element_bytes)


def total_price(ledger: Ledger, shape: ModelShape, element_bytes: int) -> Price:
    """Price all work of a request."""
    total = Price(0, 0)
    for work, count in ledger.entries.items():
        total += price_of(work, shape, element_bytes).times(count)
    return total
