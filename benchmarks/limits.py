"""How long the forwards of a decoding must take on this machine at the very least.

A forward takes no less than its bytes at the memory's read bandwidth, and no less than its operations at the
rate of the fastest matrix product; both rates are measured here, with as many threads as the decoding has.
Forwards are those that the engine really did: a recording engine notes each one, with the rows of all
requests that share it, so weights are counted once a forward (a ledger prices every request as if alone).

The bandwidth is that of DRAM. A model that fits in the processor's cache may read faster, so for a small one
a limit set by memory is no true limit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

import unmask
from timing import clock, fair_clock
from unmask.cost import Device, ModelShape, Price, Work, price_of
from unmask.engine.events import collect
from unmask.engine.forward import ForwardOutput, PlannedPart, Workspace
from unmask.engine.rules import make_rule
from unmask.engine.sampling import Predictions
from unmask.engine.sequence import SequenceState
from unmask.engine.unmasking import Predicted, Writes
from unmask.model.geometry import Segment
from unmask.spec.rule import AnyRuleSpec

FP32 = 4
BUFFER_BYTES = 1 << 30
"""Read for the bandwidth; several times the last cache."""
PRODUCT_SIZES = (1024, 1536, 2048)
"""Sides of the square products among which the fastest sets the rate."""
ATTEMPTS = 5


@dataclass
class Forward:
    """One pass through all layers, whatever requests its rows belong to."""

    rows: int
    pairs: int
    """Query-key pairs of one layer."""
    keys: int
    """Columns whose keys and values one layer reads, each counted once a request."""
    reads: int = 0
    """Rows through the head."""

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> "Forward":
        """Count the rows of a forward; the reads are not known yet."""
        rows, pairs, seen = 0, 0, dict[int, int]()
        for segment in segments:
            rows += len(segment.positions)
            pairs += len(segment.positions) * segment.visible
            seen[segment.slot] = max(segment.visible, seen.get(segment.slot, 0))
        return cls(rows, pairs, sum(seen.values()))

    def price(self, shape: ModelShape, element_bytes: int) -> Price:
        """Operations and bytes; as those of a request alone but for the keys, of which each request has its own."""
        alone = price_of(Work("shared", self.rows, self.pairs, self.reads), shape, element_bytes)
        more_keys = self.keys - self.pairs // self.rows
        return Price(alone.flops, alone.bytes + more_keys * shape.kv_width * shape.layers * element_bytes)


@dataclass(frozen=True)
class Limit:
    """The least time of some forwards."""

    seconds: float
    memory_seconds: float
    """The part of it in forwards whose bytes take longer than their operations."""

    @property
    def bound(self) -> str:
        """What sets most of the limit."""
        return "memory" if 2 * self.memory_seconds > self.seconds else "compute"


def limit_of(forwards: Iterable[Forward], shape: ModelShape, device: Device) -> Limit:
    """Sum over forwards of the larger of memory time and compute time."""
    seconds = memory_seconds = 0.0
    for forward in forwards:
        price = forward.price(shape, device.element_bytes)
        memory, compute = price.bytes / device.bytes_per_second, price.flops / device.flops_per_second
        seconds += max(memory, compute)
        memory_seconds += memory if memory > compute else 0.0
    return Limit(seconds, memory_seconds)


class RecordingWorkspace(Workspace):
    """Notes every forward."""

    forwards: list[Forward]

    def forward(
        self,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        parts: Sequence[PlannedPart] = (),
        reads: Sequence[int] | None = None,
    ) -> ForwardOutput:
        """Note the rows, then push them through."""
        assert not parts, "only full forwards are priced here"
        self.forwards.append(Forward.of(segments))
        return super().forward(tokens, segments, reads=reads)


class RecordingDecider(Predicted):
    """Notes how many rows of the latest forward were read."""

    def __init__(self, rule: AnyRuleSpec, forwards: list[Forward]) -> None:
        super().__init__(make_rule(rule))
        self.forwards = forwards

    def denoised(self, sequence: SequenceState, positions: Sequence[int], predictions: Predictions) -> Writes:
        """Every masked position was read."""
        self.forwards[-1].reads += len(positions)
        return super().denoised(sequence, positions, predictions)

    def committed(self, sequence: SequenceState, position: int, predictions: Predictions) -> Writes:
        """The position behind a block was read."""
        self.forwards[-1].reads += 1
        return super().committed(sequence, position, predictions)


class RecordingEngine(unmask.Engine):
    """The engine with a note of every forward; not for timing."""

    def __init__(self, engine: unmask.Engine) -> None:
        super().__init__(engine.transformer, engine.mask_token, engine.checkpoint)
        self.forwards: list[Forward] = []

    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        """Buffers that note their forwards."""
        workspace = RecordingWorkspace(self.transformer, slots, length, block_size)
        workspace.forwards = self.forwards
        return workspace


def recorded(
    engine: unmask.Engine, prompts: list[list[int]], spec: unmask.DecodeSpec
) -> tuple[list[list[int]], list[Forward]]:
    """Decode all prompts together; return their ids and the forwards that it took."""
    recorder = RecordingEngine(engine)
    rule = RecordingDecider(engine.config.decoded(spec).unmasking, recorder.forwards)
    answers = collect(recorder.stream(prompts, spec, batch_size=len(prompts), rule=rule))
    return [answer.ids for answer in answers], recorder.forwards


def this_machine(threads: int) -> Device:
    """Measure both rates with so many threads, which must be set already."""
    return Device("this machine", product_rate(threads), read_bandwidth(threads), FP32)


def read_bandwidth(threads: int) -> float:
    """Bytes per second of reading a buffer, by a sum or a matrix-vector product, whichever is faster."""
    matrix = torch.ones(BUFFER_BYTES // FP32 // 4096, 4096)
    vector = torch.ones(4096)
    seconds = min(_least_seconds(matrix.sum, threads), _least_seconds(lambda: matrix.mv(vector), threads))
    return matrix.nbytes / seconds


def product_rate(threads: int) -> float:
    """Operations per second of the fastest square fp32 product."""
    rates = []
    for size in PRODUCT_SIZES:
        left, right = torch.rand(size, size), torch.rand(size, size)
        out = torch.empty(size, size)
        seconds = _least_seconds(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), threads)
        rates.append(2 * size**3 / seconds)
    return max(rates)


def _least_seconds(timed: Callable[[], object], threads: int) -> float:
    """The best attempt: what the machine can do, neighbours aside."""
    return min(getattr(clock(timed), fair_clock(threads)) for _ in range(ATTEMPTS))
