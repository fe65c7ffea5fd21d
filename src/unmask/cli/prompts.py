"""What is to be answered: prompts from arguments, token ids or JSON lines, each remembered by its place.

Reads and checks everything before weights are loaded, so that a bad line is reported by its number at once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import click
import msgspec

from unmask.engine.prompt import Message, Request, as_requests, encode
from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint
from unmask.model.token_files import mask_token_of
from unmask.model.tokenizer import Tokenizer
from unmask.spec import build

Identity = int | str


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
class Item:
    """One prompt with the place it came from."""

    id: Identity
    place: str
    request: Request


def from_arguments(texts: Iterable[str], ids: Iterable[str]) -> list[Item]:
    """Prompts written on the command line."""
    prompts: list[str | list[int]] = [*texts, *map(_parse_ids, ids)]
    return [Item(number, f"Prompt {number}", Request(prompt)) for number, prompt in enumerate(prompts, 1)]


def from_lines(source: str) -> list[Item]:
    """Prompts of a JSON lines file, or of standard input for `-`; empty lines are passed over."""
    name = "standard input" if source == "-" else source
    try:
        with click.open_file(source, encoding="utf-8") as stream:
            items = list(_read_lines(stream, name))
    except FileNotFoundError:
        raise UnmaskError(f"{source}: no such file; --input takes a JSON lines file.") from None
    except UnicodeDecodeError:
        raise UnmaskError(f"{name} is no UTF-8 text; --input takes a JSON lines file.") from None
    if not items:
        raise UnmaskError(f"{name} holds no prompts; give one JSON object a line.")
    return items


def _read_lines(stream: IO[str], name: str) -> Iterator[Item]:
    for number, text in enumerate(stream, 1):
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        line = _parse_line(text, place)
        request = Request(line.prompt, line.max_new_tokens, seed=line.seed)
        yield Item(number if line.id is None else line.id, place, request)


def _parse_line(text: str, place: str) -> Line:
    try:
        values = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UnmaskError(f"{place} is no JSON ({error}).") from None
    try:
        return build(Line, values, place)
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


class Encoder:
    """Makes token ids of prompts, as the checkpoint and the choice of --chat or --raw ask for."""

    def __init__(self, checkpoint: Checkpoint, chat: bool | None, mask_token_id: int | None = None) -> None:
        self.checkpoint = checkpoint
        self.chat = chat
        """None applies the chat template to text where the checkpoint has one."""
        self.mask_token = mask_token_of(checkpoint.config, checkpoint.folder, mask_token_id)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, read when the first text needs it."""
        return Tokenizer.from_folder(self.checkpoint.folder)

    def encoded(self, item: Item) -> Item:
        """The item with token ids for a prompt, or one sentence that names its place."""
        request = item.request
        try:
            (valid,) = as_requests([request.prompt])
            ids = encode(valid, self._text_ids, self._chat_ids)
            self._refuse_unfit(ids)
        except UnmaskError as error:
            raise UnmaskError(f"{item.place}: {error}") from None
        return Item(item.id, item.place, Request(ids, request.max_new_tokens, request.repeat, request.seed))

    def _text_ids(self, text: str) -> list[int]:
        if not text:
            return []
        tokenizer = self.tokenizer
        if tokenizer.has_chat_template if self.chat is None else self.chat:
            return self._chat_ids([{"role": "user", "content": text}])
        return tokenizer.encode(text)

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        return self.tokenizer.encode(self.tokenizer.render_chat(messages), special=False)

    def _refuse_unfit(self, ids: Sequence[int]) -> None:
        """Say before loading what the engine would say after it."""
        config = self.checkpoint.config
        if len(ids) >= config.max_positions:
            raise UnmaskError(
                f"it has {len(ids)} tokens but the model's context is {config.max_positions}; shorten it."
            )
        for token in ids:
            if not 0 <= token < config.vocab_size:
                raise UnmaskError(
                    f"token id {token} is outside the vocabulary of {config.vocab_size} tokens."
                )
        if self.mask_token in ids:
            raise UnmaskError(
                f"it holds the mask token {self.mask_token}, which stands for unknown positions; leave it out."
            )
