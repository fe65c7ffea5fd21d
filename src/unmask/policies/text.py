"""Policies as people write them on a command line: a short form, JSON, or a file."""

from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from unmask.errors import UnmaskError
from unmask.policies.registry import policy_spec
from unmask.policies.subsets import INDEX
from unmask.reading import parse_settings, read_plain_text
from unmask.spec import AnyPolicySpec, PolicySpec

FORMS = 'layer_reuse:k=2,layers=middle,on=sub+block, or {"kind": "trim"}, or a .toml or .json file'


def read_policy(text: str) -> AnyPolicySpec:
    """Make a spec of one policy, however it is written."""
    return policy_spec(_mapping(text))


def _mapping(text: str) -> dict[str, Any]:
    is_json, path = text.lstrip().startswith("{"), Path(text)
    if not is_json and path.suffix not in (".toml", ".json"):
        return _short_form(text)
    what = "The policy" if is_json else text
    try:
        return parse_settings(
            text if is_json else read_plain_text(path), not is_json and path.suffix == ".toml"
        )
    except FileNotFoundError:
        raise UnmaskError(f"{path}: no such policy file; write {FORMS}.") from None
    except OSError as error:
        raise UnmaskError(f"{what} cannot be read ({error.strerror}); write {FORMS}.") from None
    except ValueError as error:
        raise UnmaskError(f"{what} cannot be read ({error}); write {FORMS}.") from None


def _short_form(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    values: dict[str, Any] = {"kind": kind.strip()}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise UnmaskError(f"The policy {text!r} cannot be read at {part!r}; write {FORMS}.")
        if name.strip() in values:
            raise UnmaskError(f"The policy {text!r} gives {name.strip()} twice; leave one out.")
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
    """A list where the field holds one (where it may also hold a word: if there is a digit), or a number.

    What does not fit stays text, which is reported later.
    """
    may_be_list = any(get_origin(part) is tuple for part in get_args(field_type))
    is_list = get_origin(field_type) is tuple or (may_be_list and text[:1].isdigit())
    if is_list:
        return [int(part) if INDEX.fullmatch(part) else part for part in text.split("+")]
    with suppress(msgspec.ValidationError):
        return msgspec.convert(text, field_type, strict=False)
    return text
