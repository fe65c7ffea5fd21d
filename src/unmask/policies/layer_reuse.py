"""Scheduled reuse of layers: they compute every k-th denoising step of a block and are replayed in between."""

from dataclasses import dataclass

from unmask.engine.policy import StepView
from unmask.engine.step_plan import FULL, Op, StepPlan, Unit
from unmask.errors import UnmaskError
from unmask.policies.calibration import calmest_layers
from unmask.policies.subsets import listed_layers, named_subset
from unmask.spec import LayerReuseSpec


@dataclass(frozen=True, slots=True)
class LayerReuse:
    """Replays or refreshes a fixed set of layers by the number of the step within its block."""

    k: int
    on: frozenset[str]
    warmup: int
    refresh: StepPlan
    replay: StepPlan

    @classmethod
    def of(cls, spec: LayerReuseSpec, layers: int) -> "LayerReuse":
        """Bind a spec to a model's depth."""
        chosen = chosen_layers(spec, layers)
        unit = Unit(spec.unit)

        def plan(op: Op) -> StepPlan:
            return StepPlan(tuple(op if layer in chosen else Op.COMPUTE for layer in range(layers)), unit)

        return cls(spec.k, frozenset(spec.on), spec.warmup, plan(Op.REFRESH), plan(Op.REPLAY))

    def plan(self, view: StepView) -> StepPlan:
        """Replay where the schedule allows it; otherwise compute and remember."""
        if self.k == 1:
            return FULL
        if view.kind.value in self.on and view.step >= self.warmup and view.step % self.k:
            return self.replay
        return self.refresh

    def refuse_probe(self, layer: int) -> None:
        """The layers below the probed one must compute."""
        lowest = next(index for index, op in enumerate(self.refresh.ops) if op is not Op.COMPUTE)
        if lowest < layer:
            raise UnmaskError(
                f"trim probes at layer {layer}, so the layers below must compute, but layer {lowest} is "
                "to be reused; reuse higher layers, lower probe_layer, or set keep = 0."
            )


def chosen_layers(spec: LayerReuseSpec, layers: int) -> tuple[int, ...]:
    """The layers that a spec reuses in a model of this depth."""
    if spec.layers == "auto":
        assert spec.calibration is not None
        assert spec.share is not None
        return calmest_layers(spec.calibration, spec.unit, spec.share, layers)
    if isinstance(spec.layers, str):
        return named_subset(spec.layers, spec.size, layers)
    return listed_layers(spec.layers, layers)
