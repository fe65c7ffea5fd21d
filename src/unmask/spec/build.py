"""Turns plain mappings (JSON, TOML, keyword arguments) into specs, with errors a person can act on."""

from typing import Any, TypeVar

import msgspec

from unmask.errors import UnmaskError

Spec = TypeVar("Spec")


def build(kind: type[Spec], values: Any, what: str) -> Spec:
    """Convert `values` to a spec of type `kind`; `what` names the input in the error message."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UnmaskError(f"{what}: {error}.{_allowed(kind, str(error))}") from None


def _allowed(kind: type, message: str) -> str:
    if "unknown field" not in message or not hasattr(kind, "__struct_fields__"):
        return ""
    return f" Allowed fields: {', '.join(kind.__struct_fields__)}."
