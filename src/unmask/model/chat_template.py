"""Chats rendered to text by the Jinja template that a checkpoint brings along.

Knows where templates lie and how they expect to be run: sandboxed, with the whitespace settings, filters and
functions that published templates rely on. It does not know about tokens beyond their texts.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unmask.errors import UnmaskError
from unmask.reading import read_plain_text

TEMPLATE_FILE = "chat_template.jinja"

Message = Mapping[str, Any]
"""A turn of a chat: `role` and `content`, and whatever else its template reads."""

# The space at the end tells whether the template trims messages: then it is gone after rendering.
_END_OF_MESSAGE = "<<UNMASK_CONTINUES_HERE>> "


class ChatTemplate:
    """A template and the token texts it may use; compiled when first rendered."""

    def __init__(self, source: str, variables: Mapping[str, str], origin: str) -> None:
        self._source = source
        self._variables = dict(variables)
        self._origin = origin

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """Render a chat; a final message to be continued stays open, and no generation prompt follows it."""
        _check(messages)
        if not continue_final_message:
            return self._run(messages, add_generation_prompt)
        final, beginning = _mark_end(messages[-1])
        text = self._run([*messages[:-1], final], add_generation_prompt=False)
        return self._cut(text, beginning)

    def _run(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            return self._compiled.render(
                messages=list(messages),
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._variables,
            )
        except UnmaskError:
            raise
        except Exception as error:  # a template is foreign code: it may fail with anything
            raise UnmaskError(
                f"{self._origin} cannot render this chat ({_one_line(error)}); "
                "change the messages, or give the prompt as text or as token ids."
            ) from None

    @cached_property
    def _compiled(self) -> Template:
        try:
            return _environment().from_string(self._source)
        except TemplateError as error:
            raise UnmaskError(
                f"{self._origin} is not a valid template ({_one_line(error)}); "
                "mend it, or give the prompt as text or as token ids."
            ) from None

    def _cut(self, text: str, beginning: str) -> str:
        marker = _END_OF_MESSAGE.strip()
        end = text.rfind(marker)
        if end < 0 or beginning.strip() not in text:
            raise UnmaskError(
                f"{self._origin} does not keep the final message as it is, so it cannot be continued; "
                "leave it out, or give the prompt as text."
            )
        trimmed = not text.startswith(_END_OF_MESSAGE, end)
        return text[:end].rstrip() if trimmed else text[:end]


def read_chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the source of a folder's template: chat_template.jinja, else tokenizer_config.json's default."""
    file = folder / TEMPLATE_FILE
    if file.is_file():
        try:
            return read_plain_text(file)
        except (OSError, ValueError) as error:
            raise UnmaskError(
                f"{file} cannot be read ({getattr(error, 'strerror', error)}); download the checkpoint again."
            ) from None
    field = config.get("chat_template")
    if isinstance(field, list):
        named = {entry.get("name"): entry.get("template") for entry in field if isinstance(entry, dict)}
        field = named.get("default")
    return field if isinstance(field, str) else None


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise UnmaskError("the chat is empty; give at least one message with a role and a content.")
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise UnmaskError(f"{message!r} is no chat message; each needs a role and a content.")


def _mark_end(message: Message) -> tuple[Message, str]:
    """Return the message with its text's end marked, and that text."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content + _END_OF_MESSAGE}, content
    parts = list(content) if isinstance(content, list | tuple) else []
    for index in reversed(range(len(parts))):
        part = parts[index]
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts[index] = {**part, "text": part["text"] + _END_OF_MESSAGE}
            return {**message, "content": parts}, part["text"]
    raise UnmaskError("the final message has no text to continue; leave it out or give it some.")


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it only has to be let through."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes what HTML needs escaped, and models were not trained on that."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
