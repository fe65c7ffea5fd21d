"""What a policy may see and what it must answer. Policies are stateless; the engine asks for each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from unmask.engine.ages import Refreshes, layer_ages, offset_bits
from unmask.engine.step_plan import FULL, Feature, Kind, StepPlan


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
    fed: range
    """Offsets that the step feeds where nothing is left out."""
    read: tuple[int, ...]
    """Offsets of the rows whose logits are read: those from which the masked positions are predicted."""
    changed: tuple[int, ...]
    """Offsets whose token changed since their keys were written."""
    ages: tuple[int | None, ...]
    """For each layer, the age of the oldest feature that could be put back for the positions that the step feeds.

    An age counts the steps since the feature was refreshed: 0 where the step before did it, None where no feature of
    the layer was refreshed in this block for all these positions. Only REFRESH does, for the rows it runs on.
    """
    drift: tuple[float, ...]
    """For each layer, how far its input had moved at the last step that measured it; empty if none did."""
    refreshes: tuple[tuple[Feature, Refreshes], ...] = field(default=(), repr=False)
    """What `ages` are taken from: when each feature of this block was refreshed, and for which offsets."""

    def narrowed(self, offsets: Sequence[int]) -> "StepView":
        """The same view with the ages among these offsets, for a plan that feeds no others."""
        ages = layer_ages(self.refreshes, offset_bits(offsets), self.step, self.layers)
        return replace(self, ages=ages)


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


NO_STEPS = (
    "one token is predicted at a time, so there are no denoising steps between which a policy could act"
)


def no_step_to_reuse(estimator: str, single_tokens: bool) -> str | None:
    """Why no policy can act on scores by this estimator; None where one can."""
    if estimator in ("first_token", "onepass"):
        return f"{estimator} takes one step a block, so there is no earlier step to reuse"
    if estimator == "monte_carlo":
        return "monte_carlo takes one step a draw, so there is no earlier step to reuse"
    if estimator == "chain" and single_tokens:
        return "single-token targets take one step, so there is no earlier step to reuse"
    return None
