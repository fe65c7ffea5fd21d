"""Policies as people write them on a command line: a short form, JSON, or a file."""

import json
import tomllib
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.policies.registry import policy_spec
from unmask.spec import AnyPolicySpec

FORMS = 'layer_reuse:k=2,layers=middle,on=sub+block, or {"kind": "trim"}, or a .toml or .json file'


def read_policy(text: str) -> AnyPolicySpec:
    """Make a spec of one policy, however it is written."""
    return policy_spec(_mapping(text))


def _mapping(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        return _parsed(text, json.loads, "The policy")
    path = Path(text)
    if path.suffix == ".toml":
        return _parsed(_content(path), tomllib.loads, text)
    if path.suffix == ".json":
        return _parsed(_content(path), json.loads, text)
    return _short_form(text)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise UnmaskError(f"{path}: no such policy file; write {FORMS}.") from None


def _parsed(text: str, parse: Any, what: str) -> dict[str, Any]:
    try:
        values = parse(text)
    except ValueError as error:
        raise UnmaskError(f"{what} cannot be read ({error}); write {FORMS}.") from None
    if not isinstance(values, dict):
        raise UnmaskError(f"{what} holds no table; write {FORMS}.")
    return values


def _short_form(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    values: dict[str, Any] = {"kind": kind.strip()}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise UnmaskError(f"The policy {text!r} cannot be read at {part!r}; write {FORMS}.")
        values[name.strip()] = _value(name.strip(), value.strip())
    return values


def _value(name: str, text: str) -> Any:
    """A list where the field holds one (`on`, `layers` with digits), else what msgspec can convert."""
    is_list = name == "on" or (name == "layers" and text[:1].isdigit())
    if not is_list:
        return text
    return [int(part) if part.isdigit() else part for part in text.split("+")]
