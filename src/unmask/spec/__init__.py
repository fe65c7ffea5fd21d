"""Frozen, validated data: what to decode and how. Knows nothing of torch, files or machines."""

from unmask.spec.build import build
from unmask.spec.decode import DecodeSpec
from unmask.spec.policy import (
    AdaptiveSpec,
    AnyPolicySpec,
    CombineSpec,
    CustomSpec,
    FullSpec,
    LayerReuseSpec,
    PolicySpec,
    TrimSpec,
    known_policy,
)

__all__ = [
    "AdaptiveSpec",
    "AnyPolicySpec",
    "CombineSpec",
    "CustomSpec",
    "DecodeSpec",
    "FullSpec",
    "LayerReuseSpec",
    "PolicySpec",
    "TrimSpec",
    "build",
    "known_policy",
]
