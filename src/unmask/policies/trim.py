"""Token-level reuse: steps that feed more than a sub-block push only those rows through that need it.

Needed are the current sub-block, rows whose token is newer than their keys, and the rows whose logits are
read (one of them may lie before the sub-block); with `inside` only the last two. Of the others a share `keep` joins,
those whose input to an early layer has moved most: a rank, because a threshold on the drift of rows that are not
recomputed confirms itself.
"""

from dataclasses import dataclass

from unmask.engine.policy import StepView
from unmask.engine.step_plan import FULL, Kind, RowSelection, StepPlan
from unmask.errors import UnmaskError
from unmask.spec import TrimSpec


@dataclass(frozen=True, slots=True)
class Trim:
    """Chooses the rows of full-block steps."""

    keep: float
    every: int | None
    probe_layer: int | None
    """None where no row competes, so that nothing need be probed."""
    inside: bool
    """Whether known, unchanged rows of the sub-block may be left out."""

    @classmethod
    def of(cls, spec: TrimSpec, layers: int) -> "Trim":
        """Bind a spec to a model's depth."""
        competing = 0 < spec.keep < 1
        if competing and spec.probe_layer >= layers:
            raise UnmaskError(f"probe_layer is {spec.probe_layer}; this model has layers 0 to {layers - 1}.")
        return cls(spec.keep, spec.every, spec.probe_layer if competing else None, spec.inside)

    def plan(self, view: StepView) -> StepPlan:
        """Trim full-block and tail steps after a block's first step; the rest is computed whole."""
        if self.keep == 1:
            return FULL
        if view.kind is Kind.SUB:
            return self._whole(tuple(view.fed))
        if view.block_steps == 0 or (self.every is not None and view.block_steps % self.every == 0):
            return self._whole(tuple(view.fed))
        needed = {*(() if self.inside else view.sub_block), *view.changed, *view.read}.intersection(view.fed)
        others = tuple(offset for offset in view.fed if offset not in needed)
        count = round(self.keep * len(others))
        return StepPlan(
            rows=RowSelection(tuple(sorted(needed)), others if count else (), count, self.probe_layer)
        )

    def _whole(self, offsets: tuple[int, ...]) -> StepPlan:
        return (
            FULL
            if self.probe_layer is None
            else StepPlan(rows=RowSelection(offsets, probe_layer=self.probe_layer))
        )
