"""What a policy may see and what it must answer. Policies are stateless; the engine asks for each step."""

from dataclasses import dataclass
from typing import Protocol

from unmask.engine.step_plan import FULL, Kind, StepPlan


@dataclass(frozen=True, slots=True)
class StepView:
    """All that a policy may know about the step that comes next; offsets count from the block's start."""

    kind: Kind
    layers: int
    block: int
    """Blocks that this request has decoded before."""
    block_size: int
    step: int
    """Denoising steps already taken in this block."""
    block_steps: int
    """Full-block steps among them."""
    sub_block: range
    masked: tuple[int, ...]
    """Offsets in the block without a token yet."""
    changed: tuple[int, ...]
    """Offsets whose token changed since their keys were written."""
    ages: tuple[int, ...]
    """For each layer, steps since it last computed in this block; empty before the block's first step."""
    drift: tuple[float, ...]
    """For each layer, how far its input had moved at the last step that measured it; empty if none did."""


class Policy(Protocol):
    """Decides for one request and one denoising step which work is done."""

    def plan(self, view: StepView) -> StepPlan:
        """Answer with a plan; FULL is always allowed."""
        ...


class Full:
    """The baseline policy: everything is computed."""

    def plan(self, view: StepView) -> StepPlan:  # noqa: ARG002 (the protocol's signature)
        """Compute everything, whatever the state."""
        return FULL
