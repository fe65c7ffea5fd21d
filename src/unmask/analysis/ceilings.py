"""The most that a configuration could gain, for results whose model is known.

Both sides are taken to need the same steps, as many as the control needed where its ledger says so. Foreign
results are judged by their own accounting: the named layers are skipped, the others run.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec

from unmask.analysis.likeness import spec_of
from unmask.analysis.records import Entry
from unmask.cost import DEVICES, Device, ModelShape
from unmask.errors import UnmaskError
from unmask.policies.ceiling import Ceiling, ceiling_of
from unmask.policies.rehearsal import Script
from unmask.spec import AnyPolicySpec, LayerReuseSpec

GPUS = {"RTX 6000": "rtx6000", "A100": "a100", "L40S": "l40s", "H100": "h100"}
"""Parts of the names that drivers report."""
ANY = Device("any", 1e12, 1e12)
PATTERN = 24
"""Steps of the pattern that stands for a mean number of tokens a step."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A speed-up that cannot be exceeded at equal steps."""

    speedup: float
    device: str | None
    """The roofline it was taken from; None: the larger of the savings in operations and in bytes."""
    accounting: str
    """What is taken to be skipped."""


def bound_of(entry: Entry, control: Entry | None = None) -> Bound | None:
    """The ceiling of an entry's policy; None where the model or the policy is not known well enough."""
    spec = spec_of(entry)
    if spec is None or entry.shape is None or set(entry.effect) == {"scoring"}:
        return None
    spec, accounting = _as_accounted(spec, entry)
    script = _script(entry, control)
    name = _device(entry)
    try:
        shape = ModelShape(**entry.shape)
        found = _rehearsed(msgspec.json.encode(spec), shape, DEVICES[name] if name else ANY, script)
    except (UnmaskError, OSError, TypeError, ValueError):
        return None
    if name:
        return Bound(found.speedup, name, accounting)
    return Bound(1 / (1 - min(0.999, max(found.flops_saved, found.bytes_saved))), None, accounting)


@lru_cache(maxsize=256)
def _rehearsed(spec: bytes, shape: ModelShape, device: Device, script: Script) -> Ceiling:
    """Configurations of one sweep ask the same again and again."""
    return ceiling_of(msgspec.json.decode(spec, type=AnyPolicySpec), shape, device, script)


def _as_accounted(spec: AnyPolicySpec, entry: Entry) -> tuple[AnyPolicySpec, str]:
    if not entry.foreign or not isinstance(spec, LayerReuseSpec):
        return spec, "what the policy skips"
    # Skipping some layers and running the others costs what residual replay costs, whatever is put back.
    size, layers = spec.size or 0, entry.layers or 0
    told = f"{size} of {layers} layers skipped on sub-block forwards, all others run"
    return msgspec.structs.replace(spec, unit="residual"), told


def _device(entry: Entry) -> str | None:
    machine = str(entry.provenance.get("machine") or "")
    return next((name for part, name in GPUS.items() if part in machine), None)


def _script(entry: Entry, control: Entry | None) -> Script:
    """The usual steps, or as many tokens a step as the control's ledger counts."""
    settings = {
        name: entry.decode[name]
        for name in ("block_size", "sub_block_size", "block_cache")
        if entry.decode.get(name) is not None
    }
    effect = control.effect.get("generation") if control else None
    if not effect or control is None or not control.tokens:
        return Script(**settings)
    steps = effect.forwards.get("block", 0) + effect.forwards.get("sub", 0)
    return Script(**settings, unmasked=_pattern(control.tokens / steps)) if steps else Script(**settings)


def _pattern(mean: float) -> tuple[int, ...]:
    """Whole numbers of at least 1 with this mean, evenly mixed."""
    ends = [math.floor(max(1.0, mean) * step + 1e-9) for step in range(PATTERN + 1)]
    return tuple(after - before for before, after in pairwise(ends))
