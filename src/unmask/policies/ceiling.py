"""What a policy can save at the very most, and which configurations cannot differ at all."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from unmask.cost import Device, Ledger, ModelShape, least_seconds, total_price
from unmask.engine.policy import NO_STEPS, Full
from unmask.policies.layer_reuse import chosen_layers
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec import AnyPolicySpec


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The best case of a policy on a script: equal steps, nothing but its savings."""

    flops_saved: float
    bytes_saved: float
    speedup: float
    """On the device's roofline."""
    dead: str | None
    """Why the policy cannot save anything, where it cannot."""


def ceiling_of(
    spec: AnyPolicySpec, shape: ModelShape, device: Device, script: Script, against: Script | None = None
) -> Ceiling:
    """Rehearse a policy and the baseline and compare their prices; `against` is the baseline's script if it differs."""
    if script.leftmost is None:
        extremes = [
            ceiling_of(
                spec,
                shape,
                device,
                replace(script, leftmost=always),
                None if against is None else replace(against, leftmost=against.leftmost or always),
            )
            for always in ((True,), (False,))
        ]
        return _best(extremes)
    baseline = _baseline(shape.layers, against or script)
    reduced = rehearse(make_policy(spec, shape.layers), shape.layers, script)
    full = total_price(baseline, shape, device.element_bytes)
    less = total_price(reduced, shape, device.element_bytes)
    return Ceiling(
        flops_saved=1 - less.flops / full.flops,
        bytes_saved=1 - less.bytes / full.bytes,
        speedup=least_seconds(baseline, shape, device) / least_seconds(reduced, shape, device),
        dead=spec.dead or (_why_unmet(spec, script) if less == full else None),
    )


def _why_unmet(spec: AnyPolicySpec, script: Script) -> str:
    return spec.unmet if script.family.has_mask else NO_STEPS


def _best(ceilings: Sequence[Ceiling]) -> Ceiling:
    """The most of each figure; dead only if it is dead in every case."""
    reasons = [ceiling.dead for ceiling in ceilings]
    return Ceiling(
        flops_saved=max(ceiling.flops_saved for ceiling in ceilings),
        bytes_saved=max(ceiling.bytes_saved for ceiling in ceilings),
        speedup=max(ceiling.speedup for ceiling in ceilings),
        dead=reasons[0] if all(reasons) else None,
    )


@lru_cache(maxsize=64)
def _baseline(layers: int, script: Script) -> Ledger:
    """All policies of a grid are compared with the same one."""
    return rehearse(Full(), layers, script)


def canonical(spec: AnyPolicySpec, layers: int) -> object:
    """Equal for two specs only when they must decode alike in a model of this depth."""
    return spec.canonical(partial(chosen_layers, layers=layers))


def equal_by_construction(specs: Sequence[AnyPolicySpec], layers: int) -> list[list[int]]:
    """Groups of two or more indices whose configurations cannot differ."""
    groups: dict[object, list[int]] = defaultdict(list)
    for index, spec in enumerate(specs):
        groups[canonical(spec, layers)].append(index)
    return [group for group in groups.values() if len(group) > 1]
