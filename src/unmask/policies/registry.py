"""From a policy spec to a policy: the one place that knows which class belongs to which spec."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from unmask.engine.policy import Full, Policy
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
from unmask.spec.own_code import installed_policy

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


def _custom(spec: CustomSpec) -> Policy:
    policy_class = _find(spec.target)
    try:
        policy = policy_class(**spec.options)
    except TypeError as error:
        raise UnmaskError(f"The policy {spec.target} cannot be made with its options: {error}.") from None
    if not _plans(policy):
        raise UnmaskError(f"{spec.target} is no policy: it has no method plan(view).")
    return policy  # type: ignore[no-any-return]


def _find(target: str) -> Any:
    try:
        return installed_policy(target).load() if ":" not in target else _imported(target)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UnmaskError(f"The policy {target} cannot be imported: {error}.") from None


def _imported(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module_name), attribute)


def _plans(policy: object) -> bool:
    return callable(getattr(policy, "plan", None)) and not isinstance(policy, type)
