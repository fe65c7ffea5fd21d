"""Policies and unmasking rules as people write them on a command line: a short form, JSON, or a file."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from unmask.errors import UnmaskError
from unmask.policies.registry import policy_spec
from unmask.policies.subsets import INDEX
from unmask.reading import parse_settings, read_plain_text
from unmask.spec import AnyPolicySpec
from unmask.spec.rule import AnyRuleSpec, rule_spec


@dataclass(frozen=True, slots=True)
class Noun:
    """What is written: its name in errors, the specs that it may be, and how to write it."""

    name: str
    specs: Any
    forms: str


FORMS = "or {}, or a .toml or .json file"
POLICY = Noun(
    "policy", AnyPolicySpec, "layer_reuse:k=2,layers=middle,on=sub+block, " + FORMS.format('{"kind": "trim"}')
)
RULE = Noun("rule", AnyRuleSpec, "top_n:steps=4,score=entropy, " + FORMS.format('{"kind": "factor"}'))


def read_policy(text: str) -> AnyPolicySpec:
    """Make a spec of one policy, however it is written."""
    return policy_spec(_mapping(text, POLICY))


def read_rule(text: str) -> AnyRuleSpec:
    """Make a spec of one unmasking rule, however it is written."""
    return rule_spec(_mapping(text, RULE))


def _mapping(text: str, noun: Noun) -> dict[str, Any]:
    is_json, path = text.lstrip().startswith("{"), Path(text)
    if not is_json and path.suffix not in (".toml", ".json"):
        return _short_form(text, noun)
    what = f"The {noun.name}" if is_json else text
    try:
        return parse_settings(
            text if is_json else read_plain_text(path), not is_json and path.suffix == ".toml"
        )
    except FileNotFoundError:
        raise UnmaskError(f"{path}: no such {noun.name} file; write {noun.forms}.") from None
    except OSError as error:
        raise UnmaskError(f"{what} cannot be read ({error.strerror}); write {noun.forms}.") from None
    except ValueError as error:
        raise UnmaskError(f"{what} cannot be read ({error}); write {noun.forms}.") from None


def _short_form(text: str, noun: Noun) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    values: dict[str, Any] = {"kind": kind.strip()}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise UnmaskError(f"The {noun.name} {text!r} cannot be read at {part!r}; write {noun.forms}.")
        if name.strip() in values:
            raise UnmaskError(f"The {noun.name} {text!r} gives {name.strip()} twice; leave one out.")
        values[name.strip()] = _value(_field_type(noun, values["kind"], name.strip()), value.strip())
    return values


def _field_type(noun: Noun, kind: str, name: str) -> Any:
    """The type of a field; str where there is no such kind or field, which is reported later."""
    structs: dict[Any, Any] = {struct.__struct_config__.tag: struct for struct in get_args(noun.specs)}
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
