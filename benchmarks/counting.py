"""What a transformer is really fed, what the products of these rows cost at least, and whether answers are equal.

Stands between the engine and its workspaces for the length of a `with` and changes nothing that is computed.
A ledger says what a request would cost alone; here a forward that requests share counts once, and prompt
blocks that were taken over instead of fed do not count at all. Knows nothing of single benchmarks.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from timing import fair_clock
from unmask.cost.shape import ModelShape
from unmask.engine.forward import ForwardOutput, Workspace
from unmask.model.geometry import Segment

Clock = Callable[[], float]
Ids = list[list[int]]
PAST_THE_CACHE = 64 << 20
"""Bytes of weights that a measurement goes through, so that none are found in a core's own cache."""


@dataclass(frozen=True)
class Forward:
    """One call of the model."""

    rows: int
    seconds: float
    kind: str


def clock_of(threads: int) -> tuple[str, Clock]:
    """The clock to compare on, by name and to read."""
    name = fair_clock(threads)
    return name, {"cpu": time.process_time, "wall": time.perf_counter}[name]


@contextmanager
def watched(
    clock: Clock = time.perf_counter, kind_of: Callable[[Sequence[Segment]], str] = lambda _: "any"
) -> Iterator[list[Forward]]:
    """The forwards of all workspaces while this is open; `kind_of` is asked about each before it runs."""
    seen: list[Forward] = []
    plain = Workspace.forward

    def forward(
        self: Workspace, tokens: Sequence[int], segments: Sequence[Segment], *planned: Any
    ) -> ForwardOutput:
        kind, start = kind_of(segments), clock()
        outcome = plain(self, tokens, segments, *planned)
        seen.append(Forward(len(tokens), clock() - start, kind))
        return outcome

    with patch.object(Workspace, "forward", forward):
        yield seen


def sizes(forwards: Sequence[Forward]) -> Counter[int]:
    """How many forwards had so many rows."""
    return Counter(forward.rows for forward in forwards)


def refuse_difference(answers: Mapping[str, Ids]) -> None:
    """Stop where contenders gave different tokens."""
    (first, expected), *others = answers.items()
    for name, ids in others:
        for request, (left, right) in enumerate(zip(expected, ids, strict=True)):
            if left != right:
                raise SystemExit(
                    f"Request {request} of {len(ids)}: the tokens of {name} differ from those of {first}, so no "
                    "figure is given; either a bug or a tie within rounding on this machine."
                )


class LayerProducts:
    """The matrix products of all layers and nothing else, each done the fastest way this build of torch has."""

    def __init__(self, shape: ModelShape) -> None:
        self.layers = shape.layers
        heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        widths = [
            (shape.hidden, heads + 2 * kv_heads),
            (heads, shape.hidden),
            (shape.hidden, 2 * shape.ffn),
            (shape.ffn, shape.hidden),
        ]
        self.weights_a_layer = sum(inputs * outputs for inputs, outputs in widths)
        copies = min(self.layers, -(-PAST_THE_CACHE // (4 * self.weights_a_layer)))
        self.products = [(inputs, self._ways(inputs, outputs, copies)) for inputs, outputs in widths]
        self.copies = copies

    @staticmethod
    def _ways(inputs: int, outputs: int, copies: int) -> list[list[Callable[[Tensor], Tensor]]]:
        plain = [torch.randn(outputs, inputs) for _ in range(copies)]
        turned = [weight.t().contiguous() for weight in plain]
        ways: list[list[Callable[[Tensor], Tensor]]] = [
            [lambda x, w=weight: F.linear(x, w) for weight in plain],
            [lambda x, w=weight: torch.mm(x, w) for weight in turned],
        ]
        if torch.backends.mkldnn.is_available():
            packed = [torch.ops.mkldnn._reorder_linear_weight(weight, 32) for weight in plain]
            call = torch.ops.mkldnn._linear_pointwise
            ways.append([lambda x, w=weight: call(x, w, None, "none", [], "") for weight in packed])
        return ways

    @torch.inference_mode()
    def seconds(self, rows: int, clock: Clock) -> float:
        """Seconds of the products of one forward of so many rows."""
        total = 0.0
        for inputs, ways in self.products:
            x = torch.randn(rows, inputs)
            total += min(self._pass(x, way, clock) for way in ways)
        return total * self.layers / self.copies

    @staticmethod
    def _pass(x: Tensor, way: Sequence[Callable[[Tensor], Tensor]], clock: Clock) -> float:
        way[0](x)
        start = clock()
        for product in way:
            product(x)
        return clock() - start

    def flops(self, rows: int) -> int:
        """Operations of these products."""
        return 2 * rows * self.weights_a_layer * self.layers
