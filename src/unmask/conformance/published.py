"""Publishers' settings in our terms, and our work in theirs: one entry for each family that has its own words.

Knows what published samplers call their settings and forwards. Vectors of Fast-dLLM v2 are written in our terms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.errors import UnmaskError
from unmask.spec.family import FAST_DLLM_V2, SDAR


@dataclass(frozen=True, slots=True)
class Published:
    """How a family's vectors are to be read."""

    decode: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Publishers' settings as decode settings."""
    forwards: Callable[[Mapping[str, int]], dict[str, int]]
    """Forwards by our kinds as the publisher counts them."""


def _same_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    return dict(decode)


def _same_forwards(steps: Mapping[str, int]) -> dict[str, int]:
    return dict(steps)


def _sdar_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "block_size": decode.get("block_length"),
        "rule": _sdar_rule(decode),
        "temperature": decode.get("temperature", 0.0),
        "stop_tokens": decode.get("stop_tokens"),
        "max_new_tokens": decode.get("max_new_tokens", []),
    }


def _sdar_rule(decode: Mapping[str, Any]) -> dict[str, Any]:
    """SDAR's step counts are those of a block, which is its only sub-block."""
    name, steps = decode.get("remasking_strategy"), decode.get("denoising_steps")
    rules: dict[Any, dict[str, Any]] = {
        "sequential": {"kind": "sequential", "steps": steps},
        "low_confidence_static": {"kind": "top_n", "steps": steps},
        "low_confidence_dynamic": {
            "kind": "threshold",
            "threshold": decode.get("confidence_threshold"),
            "steps": steps,
        },
        "entropy_bounded": {"kind": "entropy_bound", "bound": decode.get("eb_threshold")},
    }
    if name not in rules:
        raise UnmaskError(f"remasking_strategy is {name!r}; this version knows {', '.join(rules)}.")
    return rules[name]


def _sdar_forwards(steps: Mapping[str, int]) -> dict[str, int]:
    """Each of its denoising steps feeds the block; it commits the last block too, whose keys nothing reads."""
    denoise = steps.get("block", 0) + steps.get("sub", 0)
    return {"prefill": steps.get("prefill", 0), "denoise": denoise, "commit": steps.get("commit", 0) + 1}


PUBLISHED = {
    FAST_DLLM_V2.name: Published(_same_settings, _same_forwards),
    SDAR.name: Published(_sdar_settings, _sdar_forwards),
}
"""By the name that vectors give their family."""


def published_by(family: str) -> Published:
    """How vectors of a family are to be read."""
    if family not in PUBLISHED:
        raise UnmaskError(
            f"Vectors of the family {family!r} cannot be read; this version reads {', '.join(PUBLISHED)}."
        )
    return PUBLISHED[family]
