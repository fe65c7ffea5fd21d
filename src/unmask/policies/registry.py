"""From a policy spec to a policy: the one place that knows which class belongs to which spec."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from unmask.engine.policy import Full, Policy, StepView
from unmask.engine.step_plan import StepPlan
from unmask.errors import UnmaskError
from unmask.policies.adaptive import Adaptive
from unmask.policies.combine import Combine
from unmask.policies.layer_reuse import LayerReuse
from unmask.policies.trim import Trim
from unmask.spec import (
    AdaptiveSpec,
    AnyPolicySpec,
    CombineSpec,
    CustomSpec,
    FullSpec,
    LayerReuseSpec,
    PolicySpec,
    TrimSpec,
    build,
)
from unmask.spec.own_code import POLICY, guarded, made_of

MAKERS: dict[type[PolicySpec], Callable[[Any, int], Policy]] = {
    FullSpec: lambda spec, layers: Full(),  # noqa: ARG005 (the makers' signature)
    LayerReuseSpec: LayerReuse.of,
    TrimSpec: Trim.of,
    AdaptiveSpec: Adaptive.of,
    CombineSpec: lambda spec, layers: Combine.of(spec, _made(spec.rows, layers), _made(spec.layers, layers)),
    CustomSpec: lambda spec, layers: _custom(spec),  # noqa: ARG005
}


def policy_spec(values: AnyPolicySpec | Mapping[str, Any]) -> AnyPolicySpec:
    """Validate a mapping such as {"kind": "layer_reuse", "k": 2}; a spec passes through."""
    if isinstance(values, PolicySpec):
        return values
    return build(AnyPolicySpec, dict(values), "Policy")  # type: ignore[arg-type]


def make_policy(policy: Policy | AnyPolicySpec | Mapping[str, Any] | None, layers: int) -> Policy:
    """Bind a spec to a model's depth; a ready policy passes through, None is the baseline."""
    if policy is None:
        return Full()
    if isinstance(policy, PolicySpec | Mapping):
        made: Policy = _made(policy_spec(policy), layers)
        return made
    if not _plans(policy):
        raise UnmaskError(
            f"{policy!r} is no policy; give a spec such as {{'kind': 'layer_reuse', 'k': 2}}, or an object with "
            "a method plan(view)."
        )
    return policy


def _made(spec: PolicySpec, layers: int) -> Any:
    return MAKERS[type(spec)](spec, layers)


class OwnPolicy:
    """A policy of the user's own code: where that fails, the error names its file and line."""

    def __init__(self, target: str, policy: Policy) -> None:
        self._target = target
        self._policy = policy

    def plan(self, view: StepView) -> StepPlan:
        """Ask the policy, and refuse a plan whose parts are of other types than a plan's."""
        with guarded(self._target, POLICY):
            answer: object = self._policy.plan(view)
            if not isinstance(answer, StepPlan):
                raise UnmaskError(
                    f"The policy {self._target} answered with {type(answer).__name__}; plan(view) must return a "
                    "StepPlan."
                )
            try:
                return msgspec.convert(msgspec.to_builtins(answer), StepPlan)
            except (msgspec.ValidationError, TypeError) as error:
                raise UnmaskError(
                    f"The policy {self._target} answered with a plan that is none ({error}); mend it."
                ) from None


def _custom(spec: CustomSpec) -> Policy:
    return OwnPolicy(spec.target, made_of(spec.target, spec.options, POLICY))


def _plans(policy: object) -> bool:
    return callable(getattr(policy, "plan", None)) and not isinstance(policy, type)
