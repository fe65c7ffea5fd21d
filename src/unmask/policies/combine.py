"""Two policies in one plan: one chooses the rows, the other what happens to the layers."""

from dataclasses import dataclass, replace

from unmask.engine.policy import Policy, StepView
from unmask.engine.step_plan import StepPlan
from unmask.errors import UnmaskError
from unmask.policies.adaptive import Adaptive
from unmask.policies.layer_reuse import LayerReuse, chosen_layers
from unmask.policies.trim import Trim
from unmask.spec import CombineSpec, LayerReuseSpec


@dataclass(frozen=True, slots=True)
class Combine:
    """Takes rows from one plan and operations from another."""

    rows: Trim
    layers: Policy

    @classmethod
    def of(cls, spec: CombineSpec, layers: int) -> "Combine":
        """Bind both specs to a model's depth, or say why they do not go together."""
        rows = Trim.of(spec.rows, layers)
        if rows.keep == 1 or rows.every == 1:
            raise UnmaskError(
                f"{'keep' if rows.keep == 1 else 'every'} = 1 trims nothing, so there is nothing to combine; "
                "use the layer policy alone."
            )
        if isinstance(spec.layers, LayerReuseSpec):
            if spec.layers.k == 1:
                raise UnmaskError("k = 1 reuses nothing, so there is nothing to combine; use trim alone.")
            lowest = chosen_layers(spec.layers, layers)[0]
            if rows.probe_layer is not None and lowest < rows.probe_layer:
                raise UnmaskError(
                    f"trim probes at layer {rows.probe_layer}, so the layers below must compute, but layer {lowest} is "
                    "to be reused; reuse higher layers, lower probe_layer, or set keep = 0."
                )
            return cls(rows, LayerReuse.of(spec.layers, layers))
        if spec.layers.budget == 0 or spec.layers.cap == 0:
            raise UnmaskError(
                "A budget or cap of 0 reuses nothing, so there is nothing to combine; use trim alone."
            )
        if rows.probe_layer is not None:
            raise UnmaskError(
                "adaptive reuse and trim with keep > 0 both probe and would disturb each other; set keep = 0."
            )
        return cls(rows, Adaptive.of(spec.layers, layers))

    def plan(self, view: StepView) -> StepPlan:
        """The layer policy's plan on the rows that trim leaves."""
        plan = self.layers.plan(view)
        return plan if plan.replays_everything else replace(plan, rows=self.rows.plan(view).rows)
