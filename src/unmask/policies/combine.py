"""Two policies in one plan: one chooses the rows, the other what happens to the layers."""

from dataclasses import dataclass, replace
from typing import Protocol

from unmask.engine.policy import StepView
from unmask.engine.step_plan import StepPlan
from unmask.errors import UnmaskError
from unmask.policies.trim import Trim
from unmask.spec import CombineSpec


class LayerPolicy(Protocol):
    """A policy whose plans can be carried out on some rows only."""

    def plan(self, view: StepView) -> StepPlan:
        """Answer with a plan for the layers."""
        ...

    def refuse_probe(self, layer: int) -> None:
        """Say why rows cannot be chosen by the input of this layer, where that is so."""
        ...


@dataclass(frozen=True, slots=True)
class Combine:
    """Takes rows from one plan and operations from another."""

    rows: Trim
    layers: LayerPolicy

    @classmethod
    def of(cls, spec: CombineSpec, rows: Trim, layers: LayerPolicy) -> "Combine":
        """Put both together, or say why they do not go together."""
        for part, other in ((spec.rows, spec.layers), (spec.layers, spec.rows)):
            if part.dead:
                alone = other.__struct_config__.tag
                raise UnmaskError(f"There is nothing to combine, because {part.dead}; use {alone} alone.")
        if rows.probe_layer is not None:
            layers.refuse_probe(rows.probe_layer)
        return cls(rows, layers)

    def plan(self, view: StepView) -> StepPlan:
        """The layer policy's plan on the rows that trim leaves."""
        rows = self.rows.plan(view).rows
        plan = self.layers.plan(view if rows is None else view.narrowed((*rows.always, *rows.among)))
        return plan if plan.replays_everything else replace(plan, rows=rows)
