"""What is to be answered: prompts from arguments, token ids or JSON lines, each remembered by its place.

Reads, encodes and checks everything before weights are loaded, so that a bad line is reported by its number at
once. How a prompt becomes token ids is known to engine/prompt.py.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from unmask.cli.options import CheckpointOptions, F, chat_option
from unmask.engine.prompt import PromptEncoder, Request, as_requests
from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint
from unmask.model.token_files import mask_token_of
from unmask.reading import open_plain, parse_json, plain_lines
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


def prompt_options(command: F) -> F:
    """Add the three ways of giving prompts, and --chat or --raw."""
    for option in (
        chat_option,
        click.option(
            "--input", "-i", "source", metavar="FILE", help="Prompts as JSON lines; - is standard input."
        ),
        click.option("--ids", multiple=True, metavar="1,2,3", help="A prompt as token ids. Repeatable."),
        click.argument("prompts", nargs=-1, metavar="[PROMPT]..."),
    ):
        command = option(command)
    return command


def read_prompts(texts: Sequence[str], ids: Sequence[str], source: str | None) -> list[NumberedRequest]:
    """Prompts in the one way that they were given."""
    if sum(map(bool, (texts, ids, source))) != 1:
        raise click.UsageError("Give prompts in one way: as arguments, with --ids, or with --input.")
    return from_lines(source) if source else from_arguments(texts, ids)


def from_arguments(texts: Iterable[str], ids: Iterable[str]) -> list[NumberedRequest]:
    """Prompts written on the command line."""
    prompts: list[str | list[int]] = [*texts, *map(_parse_ids, ids)]
    return [
        NumberedRequest(number, f"Prompt {number}", Request(prompt))
        for number, prompt in enumerate(prompts, 1)
    ]


def from_lines(source: str) -> list[NumberedRequest]:
    """Prompts of a JSON lines file, or of standard input for `-`; empty lines are passed over."""
    name = "standard input" if source == "-" else source
    try:
        with nullcontext(sys.stdin.buffer) if source == "-" else open_plain(Path(source)) as stream:
            requests = list(_read_lines(stream, name))
    except FileNotFoundError:
        raise UnmaskError(f"{source}: no such file; --input takes a JSON lines file.") from None
    except OSError as error:
        raise UnmaskError(
            f"{name} cannot be read ({error.strerror}); --input takes a JSON lines file, or - for standard input."
        ) from None
    except UnicodeDecodeError:
        raise UnmaskError(f"{name} is no UTF-8 text; --input takes a JSON lines file.") from None
    if not requests:
        raise UnmaskError(f"{name} holds no prompts; give one JSON object a line.")
    return requests


def _read_lines(stream: BinaryIO, name: str) -> Iterator[NumberedRequest]:
    for number, line in enumerate(plain_lines(stream), 1):
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        given = _parse_line(text, place)
        request = Request(given.prompt, given.max_new_tokens, seed=given.seed)
        yield NumberedRequest(number if given.id is None else given.id, place, request)


def _parse_line(text: str, place: str) -> PromptLine:
    try:
        values = parse_json(text)
    except ValueError as error:
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
    requests: Sequence[NumberedRequest],
    checkpoint: Checkpoint,
    options: CheckpointOptions,
    chat: bool | None,
) -> list[NumberedRequest]:
    """The same requests with token ids for prompts, or one sentence that names the place of a bad one."""
    mask_token = mask_token_of(checkpoint.config, checkpoint.folder, options.mask_token_id)
    encoder = PromptEncoder(checkpoint.config, mask_token, lambda: checkpoint.tokenizer)
    return [_encoded(request, encoder, bool(chat)) for request in requests]


def holds_text(requests: Iterable[NumberedRequest]) -> bool:
    """Whether any prompt is text, to which a chat template could be applied."""
    return any(isinstance(numbered.request.prompt, str) for numbered in requests)


def _encoded(numbered: NumberedRequest, encoder: PromptEncoder, chat: bool) -> NumberedRequest:
    try:
        as_requests([numbered.request.prompt])
        ids = encoder.ids(numbered.request, chat)
    except UnmaskError as error:
        raise UnmaskError(f"{numbered.place}: {error}") from None
    return replace(numbered, request=replace(numbered.request, prompt=ids))
