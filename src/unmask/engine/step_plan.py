"""What one forward shall do, as data: printable, hashable, testable without weights."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The four kinds of forward; all are the same function called with other rows."""

    PREFILL = "prefill"
    """Whole blocks of the prompt, once."""
    BLOCK = "block"
    """A denoising step that feeds the whole current block."""
    SUB = "sub"
    """A denoising step that feeds the current sub-block only."""
    COMMIT = "commit"
    """The finished block; its last row predicts the first token of the next one."""


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
class StepPlan:
    """One policy's answer for one request and one forward."""

    ops: tuple[Op, ...] = ()
    """One for each layer; empty means that every layer computes."""
    unit: Unit = Unit.RESIDUAL


FULL = StepPlan()
"""The baseline: every layer computes every row."""
