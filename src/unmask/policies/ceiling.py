"""What a policy can save at the very most, and which configurations cannot differ at all."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from unmask.cost import Device, Ledger, ModelShape, least_seconds, total_price
from unmask.engine.policy import Full
from unmask.policies.layer_reuse import chosen_layers
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec import AdaptiveSpec, AnyPolicySpec, CombineSpec, FullSpec, LayerReuseSpec, TrimSpec


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The best case of a policy on a script: equal steps, nothing but its savings."""

    flops_saved: float
    bytes_saved: float
    speedup: float
    """On the device's roofline."""
    dead: str | None
    """Why the policy cannot save anything, where it cannot."""


def ceiling_of(spec: AnyPolicySpec, shape: ModelShape, device: Device, script: Script) -> Ceiling:
    """Rehearse a policy and the baseline and compare their prices."""
    baseline = _baseline(shape.layers, script)
    reduced = rehearse(make_policy(spec, shape.layers), shape.layers, script)
    full = total_price(baseline, shape, device.element_bytes)
    less = total_price(reduced, shape, device.element_bytes)
    return Ceiling(
        flops_saved=1 - less.flops / full.flops,
        bytes_saved=1 - less.bytes / full.bytes,
        speedup=least_seconds(baseline, shape, device) / least_seconds(reduced, shape, device),
        dead=_why_dead(spec) or (_never_met(spec) if less == full else None),
    )


@lru_cache(maxsize=64)
def _baseline(layers: int, script: Script) -> Ledger:
    """All policies of a grid are compared with the same one."""
    return rehearse(Full(), layers, script)


def _why_dead(spec: AnyPolicySpec) -> str | None:
    if isinstance(spec, FullSpec):
        return "it is the baseline"
    if isinstance(spec, LayerReuseSpec) and spec.k == 1:
        return "k = 1 recomputes at every step"
    if isinstance(spec, TrimSpec) and (spec.keep == 1 or spec.every == 1):
        return (
            "keep = 1 keeps every row" if spec.keep == 1 else "every = 1 recomputes every row at every step"
        )
    if isinstance(spec, AdaptiveSpec) and (spec.budget == 0 or spec.cap == 0):
        return "its budget or its cap is 0"
    return None


def _never_met(spec: AnyPolicySpec) -> str:
    if isinstance(spec, LayerReuseSpec):
        return f"no step of kind {' or '.join(spec.on)} comes late enough in a block to be replayed"
    return "no step of this decoding meets its conditions"


def canonical(spec: AnyPolicySpec, layers: int) -> object:
    """Equal for two specs only when they must decode alike."""
    if _why_dead(spec):
        return "baseline"
    if isinstance(spec, LayerReuseSpec):
        # Output replay puts back the final hidden states, so it is the same whatever layers it names.
        chosen = None if spec.unit == "output" else chosen_layers(spec, layers)
        # A step whose number k divides computes anyway, warm-up or not.
        warmup = spec.warmup + (spec.warmup % spec.k == 0)
        return spec.unit, spec.k, frozenset(spec.on), warmup, chosen
    if isinstance(spec, TrimSpec):
        return "trim", spec.keep, spec.every, spec.probe_layer if spec.keep else None
    if isinstance(spec, AdaptiveSpec):
        return msgspec.structs.replace(spec, on=tuple(sorted(set(spec.on))))
    if isinstance(spec, CombineSpec):
        return canonical(spec.rows, layers), canonical(spec.layers, layers)
    return msgspec.json.encode(spec, order="deterministic")


def equal_by_construction(specs: Sequence[AnyPolicySpec], layers: int) -> list[list[int]]:
    """Groups of two or more indices whose configurations cannot differ."""
    groups: dict[object, list[int]] = defaultdict(list)
    for index, spec in enumerate(specs):
        groups[canonical(spec, layers)].append(index)
    return [group for group in groups.values() if len(group) > 1]
