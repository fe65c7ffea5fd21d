"""What is to be answered: prompts from arguments, token ids or JSON lines, each remembered by its place.

Reads and checks everything before weights are loaded, so that a bad line is reported by its number at once.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import click
import msgspec

from unmask.engine.prompt import PromptEncoder, Request, as_requests
from unmask.errors import UnmaskError
from unmask.spec import build

Identity = int | str


class PromptLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of an input file."""

    prompt: str | list[Any]
    """Text, token ids, or chat messages."""
    id: Identity | None = None
    """Copied to the answer; None gives the line number."""
    max_new_tokens: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no decoding could honour."""
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UnmaskError(f"max_new_tokens is {self.max_new_tokens}; it must be at least 1.")


@dataclass(frozen=True, slots=True)
class NumberedRequest:
    """One prompt with the place it came from."""

    id: Identity
    place: str
    request: Request


def from_arguments(texts: Iterable[str], ids: Iterable[str]) -> list[NumberedRequest]:
    """Prompts written on the command line."""
    prompts: list[str | list[int]] = [*texts, *map(_parse_ids, ids)]
    return [NumberedRequest(number, f"Prompt {number}", Request(prompt)) for number, prompt in enumerate(prompts, 1)]


def from_lines(source: str) -> list[NumberedRequest]:
    """Prompts of a JSON lines file, or of standard input for `-`; empty lines are passed over."""
    name = "standard input" if source == "-" else source
    try:
        with click.open_file(source, encoding="utf-8") as stream:
            requests = list(_read_lines(stream, name))
    except FileNotFoundError:
        raise UnmaskError(f"{source}: no such file; --input takes a JSON lines file.") from None
    except UnicodeDecodeError:
        raise UnmaskError(f"{name} is no UTF-8 text; --input takes a JSON lines file.") from None
    if not requests:
        raise UnmaskError(f"{name} holds no prompts; give one JSON object a line.")
    return requests


def _read_lines(stream: IO[str], name: str) -> Iterator[NumberedRequest]:
    for number, text in enumerate(stream, 1):
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        line = _parse_line(text, place)
        request = Request(line.prompt, line.max_new_tokens, seed=line.seed)
        yield NumberedRequest(number if line.id is None else line.id, place, request)


def _parse_line(text: str, place: str) -> PromptLine:
    try:
        values = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UnmaskError(f"{place} is no JSON ({error}).") from None
    try:
        return build(PromptLine, values, place)
    except UnmaskError as error:
        message = str(error)
        raise UnmaskError(message if message.startswith(place) else f"{place}: {message}") from None


def _parse_ids(text: str) -> list[int]:
    """Numbers between commas or spaces; nothing between two commas is a slip, not a shorter prompt."""
    parts = re.split(r"\s*,\s*|\s+", text.strip()) if text.strip() else []
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise UnmaskError(f"--ids {text!r} is no list of token ids; write them as 1,2,3.") from None


def encoded(
    requests: Iterable[NumberedRequest], encoder: PromptEncoder, chat: bool
) -> list[NumberedRequest]:
    """The same requests with token ids for prompts, or one sentence that names the place of a bad one."""
    return [_encoded(each, encoder, chat) for each in requests]


def _encoded(numbered: NumberedRequest, encoder: PromptEncoder, chat: bool) -> NumberedRequest:
    try:
        as_requests([numbered.request.prompt])
        ids = encoder.ids(numbered.request, chat)
    except UnmaskError as error:
        raise UnmaskError(f"{numbered.place}: {error}") from None
    return replace(numbered, request=replace(numbered.request, prompt=ids))
