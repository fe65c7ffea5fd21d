"""Counted work: what forwards really did, as numbers that can be added, compared and priced.

A ledger belongs to one request and is the same whether the request ran alone or in a batch. What its company in the
batch spared the request stands beside the ledger (`Sharing`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

USUAL_KINDS = ("prefill", "block", "sub", "commit")
KINDS = (*USUAL_KINDS, "tail")
"""Kinds of forwards; the last is named only where there is one, since few decodings have any."""


@dataclass(frozen=True, slots=True)
class Work:
    """The share of one request in one forward."""

    kind: str
    rows: int
    """Rows that the baseline feeds in such a forward."""
    pairs: int
    """Query-key pairs that one layer's attention computes for these rows."""
    reads: int
    """Rows whose logits were read."""
    attention: tuple[int, ...] | None = None
    """Rows through the attention of each layer; None means all rows in every layer."""
    mlp: tuple[int, ...] | None = None
    """Rows through the MLP of each layer; None means all rows in every layer."""

    def attention_rows(self, layer: int) -> int:
        """Rows that went through a layer's attention."""
        return self.rows if self.attention is None else self.attention[layer]

    def mlp_rows(self, layer: int) -> int:
        """Rows that went through a layer's MLP."""
        return self.rows if self.mlp is None else self.mlp[layer]

    @property
    def in_full(self) -> "Work":
        """The same forward with nothing skipped."""
        return Work(self.kind, self.rows, self.pairs, self.reads)


@dataclass(slots=True)
class Ledger:
    """All work of one request."""

    layers: int
    """Layers of the model."""
    entries: Counter[Work] = field(default_factory=Counter)
    """Each kind of forward, and how often it was taken."""

    def add(self, work: Work) -> None:
        """Count one forward."""
        self.entries[work] += 1

    def steps(self) -> dict[str, int]:
        """Forwards by kind, replayed ones included."""
        return self._sum((work.kind, count) for work, count in self.entries.items())

    def rows(self) -> dict[str, int]:
        """Rows of these forwards, by kind, before anything was skipped."""
        return self._sum((work.kind, count * work.rows) for work, count in self.entries.items())

    def layer_calls(self) -> list[int]:
        """For each layer, the number of forwards in which any of its branches ran on any row."""
        return [
            sum(
                count
                for work, count in self.entries.items()
                if work.attention_rows(layer) or work.mlp_rows(layer)
            )
            for layer in range(self.layers)
        ]

    def branch_rows(self) -> int:
        """Rows through attention plus rows through MLP, summed over layers: what was really computed."""
        return sum(
            count * (work.attention_rows(layer) + work.mlp_rows(layer))
            for work, count in self.entries.items()
            for layer in range(self.layers)
        )

    def in_full(self) -> "Ledger":
        """The ledger of the same forwards with nothing skipped."""
        full = Ledger(self.layers)
        for work, count in self.entries.items():
            full.entries[work.in_full] += count
        return full

    def reuse_fraction(self) -> float:
        """Share of the layer work of these forwards that was not done."""
        full = self.in_full().branch_rows()
        return 1 - self.branch_rows() / full if full else 0.0

    def merged(self, other: "Ledger") -> "Ledger":
        """Return the work of both."""
        return Ledger(self.layers, self.entries + other.entries)

    @staticmethod
    def _sum(items: Iterable[tuple[str, int]]) -> dict[str, int]:
        total = dict.fromkeys(USUAL_KINDS, 0)
        for kind, count in items:
            total[kind] = total.get(kind, 0) + count
        return total

    def as_dict(self) -> dict[str, object]:
        """A summary for programs."""
        return {
            "steps": self.steps(),
            "rows": self.rows(),
            "layer_calls": self.layer_calls(),
            "branch_rows": self.branch_rows(),
            "reuse_fraction": self.reuse_fraction(),
        }


@dataclass(slots=True)
class Sharing:
    """What a request did not cost because of others in the batch: it depends on them, which a ledger never does."""

    positions: int = 0
    """Prompt positions whose keys and values were taken over from another request instead of computed."""
    pairs: int = 0
    """Query-key pairs that one layer's attention would have computed for these positions."""
    forwards: int = 0
    """Forwards of the ledger for which no weights were read, because a forward of another sequence had read them."""

    def take_over(self, whole: Work, computed: Work) -> None:
        """Count the part of a prompt that is copied instead of computed."""
        self.positions += whole.rows - computed.rows
        self.pairs += whole.pairs - computed.pairs

    def add(self, other: "Sharing") -> None:
        """Count what another request was spared too."""
        self.positions += other.positions
        self.pairs += other.pairs
        self.forwards += other.forwards
