"""Chats rendered to text by the Jinja template that a checkpoint brings along.

Knows where templates lie and how they expect to be run: sandboxed, with the whitespace settings, filters and
functions that published templates rely on, and within limits of steps, seconds and memory, since a template is a
program of somebody else. It does not know about tokens beyond their texts.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from types import FrameType
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

MOST_STEPS, MOST_SECONDS = 1_000_000, 3
MOST_MEMORY = 512 << 20
"""Bytes that rendering may take; a chat takes thousands."""
MOST_CHARACTERS = 16 << 20
LARGEST_INTEGER = 1 << 64

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
        compiled = self._compiled
        try:
            with _within_limits():
                text = compiled.render(
                    messages=list(messages),
                    tools=None,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **self._variables,
                )
            if len(text) > MOST_CHARACTERS:
                raise TemplateError(f"its text has {len(text)} characters")
            return text
        except Exception as error:  # a template is foreign code: it may fail with anything
            raise UnmaskError(
                f"{self._origin} cannot render this chat ({_one_line(error)}); "
                "change the messages, or give the prompt as text or as token ids."
            ) from None

    @cached_property
    def _compiled(self) -> Template:
        try:
            # Constant parts are computed here already.
            with _within_limits():
                return _environment().from_string(self._source)
        except Exception as error:  # a template that is nested too deeply is not only a TemplateError
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


@contextmanager
def _within_limits() -> Iterator[None]:
    """Stop a template that takes too many steps, too long or too much memory."""
    left, end = MOST_STEPS, time.thread_time() + MOST_SECONDS

    def count(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG001 (the signature of a tracer)
        nonlocal left
        left -= 1
        if left < 0 or time.thread_time() > end:
            raise TemplateError(f"it takes more than {MOST_STEPS} steps or {MOST_SECONDS} seconds of work")
        return count

    tracer = sys.gettrace()
    with _limited_memory():
        sys.settrace(count)
        try:
            yield
        finally:
            sys.settrace(tracer)


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Let this process take only so much more memory, where the system says how much it has."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        most = pages * os.sysconf("SC_PAGE_SIZE") + MOST_MEMORY
        if before[0] == resource.RLIM_INFINITY or most < before[0]:
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    except (OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, before)


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


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses integers whose multiplication would take longer than any step should."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute a product or a power."""
        if isinstance(left, int) and isinstance(right, int):
            large = max(abs(left), abs(right)) > LARGEST_INTEGER
            if large or (operator == "**" and right * left.bit_length() > 1024):
                raise TemplateError("it computes with very large numbers")
        return super().call_binop(context, operator, left, right)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(
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
