"""What one forward shall do, as data: printable, hashable, testable without weights."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """The kinds of forward; all are the same function called with other rows."""

    PREFILL = "prefill"
    """Whole blocks of the prompt, once."""
    BLOCK = "block"
    """A denoising step that feeds the whole current block."""
    SUB = "sub"
    """A denoising step that feeds the current sub-block only."""
    TAIL = "tail"
    """A denoising step that feeds the current sub-block and all of the block behind it."""
    COMMIT = "commit"
    """The finished block; its last row predicts the first token of the next one."""


DENOISING = (Kind.BLOCK, Kind.SUB, Kind.TAIL)
"""The steps that predict masked positions."""


class Op(Enum):
    """What happens to one layer."""

    COMPUTE = "compute"
    REFRESH = "refresh"
    """Compute, and remember what a later REPLAY will need."""
    REPLAY = "replay"
    """Put back what was remembered; the layer does not run."""


class Unit(Enum):
    """What a REPLAY puts back."""

    OUTPUT = "output"
    """The final hidden states as last computed; no layer runs at all."""
    RESIDUAL = "residual"
    """The change that a span of layers made to the residual stream."""
    ATTENTION = "attention"
    """The change made by the attention branch of each layer."""
    MLP = "mlp"
    """The change made by the MLP branch of each layer."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which offsets of the block go through the layers; the others keep their keys and features."""

    always: tuple[int, ...]
    """Offsets (places counted from the block's start) that go through every layer."""
    among: tuple[int, ...] = ()
    """Offsets that compete for `count` places by how far the probed layer's input has drifted."""
    count: int = 0
    probe_layer: int | None = None
    """The input of this layer is remembered for the rows computed; layers below it run on all competitors."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring layers `[start, stop)` that are treated alike and share a feature."""

    start: int
    stop: int
    op: Op


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One policy's answer for one request and one forward."""

    ops: tuple[Op, ...] = ()
    """One for each layer; empty means that every layer computes."""
    unit: Unit = Unit.RESIDUAL
    merge: bool = True
    """Whether neighbouring layers share one residual feature; False keeps one for each layer."""
    rows: RowSelection | None = None
    """None pushes every row of the forward through."""
    drift: bool = False
    """Whether to measure how far every layer's input has moved since that layer last computed."""

    @property
    def replays_everything(self) -> bool:
        """Whether no layer runs: the logits are those of the last computation."""
        return self.unit is Unit.OUTPUT and Op.REPLAY in self.ops

    @property
    def shared(self) -> "StepPlan":
        """What layers are told of the plan: not which offsets run, and nothing where they do what they always do."""
        rows = None
        if self.rows is not None and self.rows.probe_layer is not None:
            rows = RowSelection((), probe_layer=self.rows.probe_layer)
        if not (rows or self.drift) and set(self.ops) <= {Op.COMPUTE}:
            return FULL
        return self if rows == self.rows else replace(self, rows=rows)


FULL = StepPlan()
"""The baseline: every layer computes every row."""


@lru_cache(maxsize=4096)
def spans(plan: StepPlan) -> tuple[Span, ...]:
    """Cut a plan's layers into spans of equal operation (single layers where features are not merged)."""
    merged = plan.merge and plan.unit in (Unit.RESIDUAL, Unit.OUTPUT)
    parts: list[Span] = []
    for layer, op in enumerate(plan.ops):
        last = parts[-1] if parts else None
        if last and last.op is op and (merged or (op is Op.COMPUTE and not plan.drift)):
            parts[-1] = Span(last.start, layer + 1, op)
        else:
            parts.append(Span(layer, layer + 1, op))
    return tuple(parts)


Feature = tuple[Unit, int, int]
"""Names what is remembered: a unit and the layers it covers."""


@lru_cache(maxsize=4096)
def features(plan: StepPlan, op: Op) -> tuple[Feature, ...]:
    """The features that a plan remembers (REFRESH) or needs (REPLAY)."""
    if plan.unit is Unit.OUTPUT:
        return ((Unit.OUTPUT, 0, len(plan.ops)),) if op in plan.ops else ()
    return tuple((plan.unit, span.start, span.stop) for span in spans(plan) if span.op is op)
