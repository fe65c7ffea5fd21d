"""Frozen, validated data: what to decode and how. Knows nothing of torch, files or machines."""

from unmask.spec.build import build
from unmask.spec.decode import DecodeSpec

__all__ = ["DecodeSpec", "build"]
