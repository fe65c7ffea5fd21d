"""What the forwards behind a result did, as sums: small enough to be written down for every answer.

A ledger lists every forward of a request; these sums keep only what adds up, so that the sums of answers
that were given in several attempts sum up to those of an undisturbed run.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from unmask.cost.price import price_of
from unmask.cost.shape import ModelShape
from unmask.cost.work import KINDS, USUAL_KINDS, Ledger

FP32 = 4
WorkRow = tuple[int, list[tuple[int, int, int, int]], list[int], int, int]
"""Requests, counts by kind, calls of each layer, operations, and operations skipped."""


@dataclass(slots=True)
class KindSums:
    """Forwards of one kind."""

    forwards: int = 0
    rows: int = 0
    """Rows of these forwards before anything was skipped."""
    branch_rows: int = 0
    """Rows through attention plus rows through MLP, summed over layers."""
    branch_rows_skipped: int = 0

    def add(self, other: "KindSums") -> None:
        """Count another one too."""
        self.forwards += other.forwards
        self.rows += other.rows
        self.branch_rows += other.branch_rows
        self.branch_rows_skipped += other.branch_rows_skipped


@dataclass(slots=True)
class WorkSums:
    """The work of some requests and what was skipped of it."""

    layers: int
    requests: int = 0
    kinds: dict[str, KindSums] = field(default_factory=lambda: {kind: KindSums() for kind in KINDS})
    layer_calls: list[int] = field(default_factory=list)
    flops: int = 0
    flops_skipped: int = 0

    def __post_init__(self) -> None:
        self.layer_calls = self.layer_calls or [0] * self.layers

    @classmethod
    def of(cls, ledger: Ledger, shape: ModelShape, requests: int = 1) -> "WorkSums":
        """Sum a ledger up."""
        sums = cls(ledger.layers, requests, layer_calls=ledger.layer_calls())
        for work, count in ledger.entries.items():
            full = 2 * work.rows * ledger.layers
            done = sum(work.attention_rows(layer) + work.mlp_rows(layer) for layer in range(ledger.layers))
            sums.kinds[work.kind].add(KindSums(count, count * work.rows, count * done, count * (full - done)))
            flops = count * price_of(work, shape, FP32).flops
            sums.flops += flops
            sums.flops_skipped += count * price_of(work.in_full, shape, FP32).flops - flops
        return sums

    def add(self, other: "WorkSums") -> None:
        """Count the work of other requests too."""
        self.requests += other.requests
        for kind, part in other.kinds.items():
            self.kinds[kind].add(part)
        self.layer_calls = [a + b for a, b in zip(self.layer_calls, other.layer_calls, strict=True)]
        self.flops += other.flops
        self.flops_skipped += other.flops_skipped

    @property
    def forwards(self) -> int:
        """Forwards of all kinds."""
        return sum(part.forwards for part in self.kinds.values())

    @property
    def branch_rows(self) -> int:
        """Branch rows of all kinds."""
        return sum(part.branch_rows for part in self.kinds.values())

    @property
    def branch_rows_skipped(self) -> int:
        """Branch rows of all kinds that were not computed."""
        return sum(part.branch_rows_skipped for part in self.kinds.values())

    @property
    def reuse_fraction(self) -> float:
        """Share of the layer work of these forwards that was not done."""
        full = self.branch_rows + self.branch_rows_skipped
        return self.branch_rows_skipped / full if full else 0.0

    @property
    def named_kinds(self) -> dict[str, KindSums]:
        """The kinds that records name: the usual ones, and what else there was."""
        return {kind: part for kind, part in self.kinds.items() if kind in USUAL_KINDS or part.forwards}

    def as_dict(self) -> dict[str, Any]:
        """For records."""
        kinds = self.named_kinds
        return {
            "requests": self.requests,
            "forwards": {kind: part.forwards for kind, part in kinds.items()},
            "rows": {kind: part.rows for kind, part in kinds.items()},
            "layer_calls": self.layer_calls,
            "layer_calls_replayed": self.forwards * self.layers - sum(self.layer_calls),
            "branch_rows": self.branch_rows,
            "branch_rows_skipped": self.branch_rows_skipped,
            "by_kind": {kind: asdict(part) for kind, part in kinds.items()},
            "flops": self.flops,
            "flops_skipped": self.flops_skipped,
            "reuse_fraction": self.reuse_fraction,
        }

    def as_row(self) -> WorkRow:
        """The same in few characters, for one line of an answers file."""
        kinds = [
            (part.forwards, part.rows, part.branch_rows, part.branch_rows_skipped)
            for part in self.named_kinds.values()
        ]
        return self.requests, kinds, self.layer_calls, self.flops, self.flops_skipped

    @classmethod
    def from_row(cls, row: WorkRow) -> "WorkSums":
        """Read back what `as_row` wrote."""
        requests, kinds, calls, flops, skipped = row
        given = zip(KINDS, kinds, strict=False)
        parts = {kind: KindSums() for kind in KINDS} | {kind: KindSums(*values) for kind, values in given}
        return cls(len(calls), requests, parts, list(calls), flops, skipped)
