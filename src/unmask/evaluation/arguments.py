"""Model arguments as lm-eval's command line hands them over: plain values and text."""

from collections.abc import Mapping
from typing import Any

import msgspec

from unmask.engine.engine import DEFAULT_BATCH
from unmask.errors import UnmaskError
from unmask.policies.registry import policy_spec
from unmask.policies.text import read_policy
from unmask.spec import AnyPolicySpec, DecodeSpec, build


def as_decode_spec(decode: DecodeSpec | Mapping[str, Any] | None, settings: dict[str, Any]) -> DecodeSpec:
    """Settings of their own or as model arguments, such as threshold=0.9."""
    if "max_gen_toks" in settings:
        settings["max_new_tokens"] = settings.pop("max_gen_toks")
    if isinstance(decode, DecodeSpec):
        return msgspec.structs.replace(decode, **settings)
    return build(DecodeSpec, {**(decode or {}), **settings}, "Model arguments")


def as_policy(policy: AnyPolicySpec | Mapping[str, Any] | str | None) -> AnyPolicySpec | None:
    """A policy as a spec, a table, or text in any of the forms of the command line."""
    if isinstance(policy, str):
        return read_policy(policy)
    return None if policy is None else policy_spec(policy)


def as_batch_size(batch_size: int | str | None) -> int:
    """Rows together; lm-eval's `auto` takes the engine's default."""
    if batch_size is None or str(batch_size).startswith("auto"):
        return DEFAULT_BATCH
    try:
        size = int(batch_size)
    except ValueError:
        size = 0
    if size < 1:
        raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1, or auto.")
    return size
