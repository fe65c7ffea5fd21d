"""Reuse where it was measured to be safe: layers whose input has hardly moved since they last ran.

The drift a decision rests on lags by one step (it comes to the host together with that step's
candidates, so nothing waits for it), and without a measurement in the present block nothing is reused.
"""

from dataclasses import dataclass

from unmask.engine.policy import StepView
from unmask.engine.step_plan import Op, StepPlan, Unit
from unmask.errors import UnmaskError
from unmask.spec import AdaptiveSpec


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Chooses layers anew at every step."""

    unit: Unit
    on: frozenset[str]
    max_drift: float
    budget: float
    cap: int

    @classmethod
    def of(cls, spec: AdaptiveSpec, layers: int) -> "Adaptive":  # noqa: ARG003 (all policies are bound alike)
        """Bind a spec to a model's depth."""
        return cls(Unit(spec.unit), frozenset(spec.on), spec.max_drift, spec.budget, spec.cap)

    def plan(self, view: StepView) -> StepPlan:
        """Replay the calmest layers within budget and cap; refresh all others."""
        reused = self._reusable(view) if view.kind.value in self.on else set()
        ops = tuple(Op.REPLAY if layer in reused else Op.REFRESH for layer in range(view.layers))
        return StepPlan(ops, self.unit, merge=False, drift=True)

    def refuse_probe(self, layer: int) -> None:  # noqa: ARG002 (whichever it is)
        """Drift is measured at every layer, which a choice of rows would disturb."""
        raise UnmaskError(
            "adaptive reuse and trim with keep > 0 both probe and would disturb each other; set keep = 0."
        )

    def _reusable(self, view: StepView) -> set[int]:
        calm = [
            layer
            for layer, drift in enumerate(view.drift)
            if drift <= self.max_drift and (age := view.ages[layer]) is not None and age < self.cap
        ]
        calm.sort(key=lambda layer: view.drift[layer])
        return set(calm[: int(self.budget * view.layers)])
