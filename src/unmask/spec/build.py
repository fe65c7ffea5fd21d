"""Turns plain mappings (JSON, TOML, keyword arguments) into specs, with errors a person can act on."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from unmask.errors import UnmaskError

Spec = TypeVar("Spec")
PLACE = re.compile(r"at `\$([^`]*)`$")
STEP = re.compile(r"\.([A-Za-z_]\w*)")
MOST_SHOWN = 60
"""Characters of a bad value that an error repeats."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a recipe: frozen, and without unknown fields."""


def build(kind: type[Spec], values: Any, what: str) -> Spec:
    """Convert `values` to a spec of type `kind`, text never to a number; `what` names the input in an error."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UnmaskError(f"{what}: {error}.{_allowed(kind, values, str(error))}") from None
    except RecursionError:
        raise UnmaskError(f"{what} is nested too deeply; write it with fewer levels.") from None


def build_named(kind: type[Spec], values: Any, what: str) -> Spec:
    """The same, and errors of the spec itself begin with `what` too."""
    try:
        return build(kind, values, what)
    except UnmaskError as error:
        sentence = str(error)
        raise UnmaskError(sentence if sentence.startswith(what) else f"{what}: {sentence}") from None


def within(name: str, value: float | None, least: float, most: float) -> None:
    """Refuse a setting outside of its bounds, both of which are allowed; None is none."""
    if value is None or least <= value <= most:
        return
    if value < least:
        raise UnmaskError(f"{name} is {shown(value)}; it must be at least {least}.")
    raise UnmaskError(f"{name} is {shown(value)}; it must be a number of at most {most}.")


def shown(value: object) -> str:
    """A bad value as a sentence can show it."""
    try:
        text = repr(value)
    except Exception:  # what a user's own code gave may fail even here
        text = f"a {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _allowed(kind: Any, values: Any, message: str) -> str:
    """What could have stood in place of a field, a kind or a word that does not exist."""
    place = PLACE.search(message)
    path = STEP.findall(place[1]) if place else []
    if "missing required field `kind`" in message or path[-1:] == ["kind"]:
        structs = _inside(kind, [name for name in path if name != "kind"], None)
        tags = sorted(struct.__struct_config__.tag for struct in structs if struct.__struct_config__.tag)
        return f" Kinds: {', '.join(tags)}." if tags else ""
    if "Invalid enum value" in message and path:
        words = dict.fromkeys(
            word
            for struct in _inside(kind, path[:-1], values)
            for field in msgspec.structs.fields(struct)
            if field.name == path[-1]
            for word in _words(field.type)
        )
        return f" Allowed: {', '.join(words)}." if words else ""
    structs = _inside(kind, path, values)
    for struct in structs if "unknown field" in message else ():
        for before, now in getattr(struct, "renamed", {}).items():
            if f"`{before}`" in message:
                return f" It is now called {now}."
    if "unknown field" in message and len(structs) == 1:
        return f" Allowed fields: {', '.join(structs[0].__struct_fields__)}."
    return ""


def _inside(kind: Any, path: list[str], values: Any) -> list[Any]:
    """The structs that may stand at a path below a type; of a tagged union the one that the values name."""
    structs = _structs(kind)
    given = values if isinstance(values, Mapping) else {}
    named = [struct for struct in structs if struct.__struct_config__.tag == given.get("kind", "")]
    structs = named or structs
    if not path:
        return structs
    fields = [
        field.type for struct in structs for field in msgspec.structs.fields(struct) if field.name == path[0]
    ]
    return [struct for field in fields for struct in _inside(field, path[1:], given.get(path[0]))]


def _structs(kind: Any) -> list[Any]:
    """The structs of a type: itself, the members of a union, the elements of a tuple."""
    if hasattr(kind, "__struct_fields__"):
        return [kind]
    return [struct for part in get_args(kind) for struct in _structs(part)]


def _words(kind: Any) -> list[str]:
    """The words that a type allows, alone or in a list."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _words(part)]
