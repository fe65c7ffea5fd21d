"""Policies as people write them on a command line: a short form, JSON, or a file."""

import json
import tomllib
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from unmask.errors import UnmaskError
from unmask.policies.registry import policy_spec
from unmask.spec import AnyPolicySpec, PolicySpec

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
        values[name.strip()] = _value(_field_type(values["kind"], name.strip()), value.strip())
    return values


def _field_type(kind: str, name: str) -> Any:
    """The type of a policy's field; str where there is no such policy or field, which is reported later."""
    structs: dict[Any, type[PolicySpec]] = {
        struct.__struct_config__.tag: struct for struct in get_args(AnyPolicySpec)
    }
    fields = msgspec.structs.fields(structs[kind]) if kind in structs else ()
    return next((field.type for field in fields if field.name == name), str)


def _value(field_type: Any, text: str) -> Any:
    """A list where the field holds one (where it may also hold a word: if there is a digit), else the text as it is."""
    may_be_list = any(get_origin(part) is tuple for part in get_args(field_type))
    is_list = get_origin(field_type) is tuple or (may_be_list and text[:1].isdigit())
    if not is_list:
        return text
    return [int(part) if part.isdigit() else part for part in text.split("+")]
