"""Counted work: what forwards really did, as numbers that can be added, compared and priced.

A ledger belongs to one request and is the same whether the request ran alone or in a batch.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Work:
    """The share of one request in one forward."""

    kind: str
    rows: int
    """Rows fed."""
    pairs: int
    """Query-key pairs that one layer's attention computes for these rows."""
    reads: int
    """Rows whose logits were read."""
    attention: tuple[int, ...] | None = None
    """Rows through the attention of each layer; None means all rows in every layer."""
    mlp: tuple[int, ...] | None = None
    """Rows through the MLP of each layer; None means all rows in every layer."""


@dataclass(slots=True)
class Ledger:
    """All work of one request."""

    layers: int
    entries: Counter[Work] = field(default_factory=Counter)

    def add(self, work: Work) -> None:
        """Count one forward."""
        self.entries[work] += 1

    def steps(self) -> dict[str, int]:
        """Forwards by kind, replayed ones included."""
        return self._sum((work.kind, count) for work, count in self.entries.items())

    def rows(self) -> dict[str, int]:
        """Rows fed, by kind."""
        return self._sum((work.kind, count * work.rows) for work, count in self.entries.items())

    def layer_calls(self) -> list[int]:
        """For each layer, the number of forwards in which any of its branches ran on any row."""
        calls = [0] * self.layers
        for work, count in self.entries.items():
            for layer in range(self.layers):
                attention = work.rows if work.attention is None else work.attention[layer]
                mlp = work.rows if work.mlp is None else work.mlp[layer]
                calls[layer] += count if attention or mlp else 0
        return calls

    def merged(self, other: "Ledger") -> "Ledger":
        """Return the work of both."""
        return Ledger(self.layers, self.entries + other.entries)

    @staticmethod
    def _sum(items: Iterable[tuple[str, int]]) -> dict[str, int]:
        total = {"prefill": 0, "block": 0, "sub": 0, "commit": 0}
        for kind, count in items:
            total[kind] += count
        return total

    def as_dict(self) -> dict[str, object]:
        """A summary for programs."""
        return {"steps": self.steps(), "rows": self.rows(), "layer_calls": self.layer_calls()}
