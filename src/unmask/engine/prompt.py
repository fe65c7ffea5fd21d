"""What a caller may pass as a prompt, made into requests of token ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from unmask.errors import UnmaskError

Message: TypeAlias = Mapping[str, str]
NO_PROMPT = "A prompt must be a string, a list of token ids, or a list of {role, content} messages."


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt with settings of its own."""

    prompt: str | Sequence[int] | Sequence[Message]
    max_new_tokens: int | None = None
    """None takes the decode settings'."""
    repeat: int = 0
    """Tells apart several draws for the same prompt; without effect at temperature 0."""
    seed: int | None = None
    """None derives the seed from decode seed, prompt and repeat."""


Prompt: TypeAlias = str | Sequence[int] | Sequence[Message] | Request


def as_requests(prompts: Prompt | Sequence[Prompt]) -> list[Request]:
    """Accept one prompt or many; a list of ids and a chat are one prompt each."""
    if isinstance(prompts, Request):
        return [prompts]
    if isinstance(prompts, str) or _is_ids(prompts) or _is_chat(prompts):
        return [Request(prompts)]
    if isinstance(prompts, Mapping) or not isinstance(prompts, Iterable):
        raise UnmaskError(NO_PROMPT)
    return [_as_request(prompt) for prompt in prompts]


def _as_request(prompt: object) -> Request:
    if isinstance(prompt, Request):
        return prompt
    if isinstance(prompt, str) or _is_ids(prompt) or _is_chat(prompt):
        return Request(prompt)
    if isinstance(prompt, list | tuple) and not prompt:
        raise UnmaskError("A prompt is empty; give at least one token.")
    raise UnmaskError(NO_PROMPT)


def encode(
    request: Request, text_ids: Callable[[str], list[int]], chat_ids: Callable[[Sequence[Message]], list[int]]
) -> list[int]:
    """Return a request's token ids, which must not be empty."""
    prompt, ids = request.prompt, list[int]()
    if isinstance(prompt, str):
        ids = text_ids(prompt)
    elif _is_chat(prompt):
        ids = chat_ids(prompt)
    elif _is_ids(prompt):
        ids = list(prompt)
    else:
        _as_request(prompt)
    if not ids:
        raise UnmaskError("A prompt is empty; give at least one token.")
    return ids


def _is_ids(prompt: object) -> TypeGuard[Sequence[int]]:
    return isinstance(prompt, list | tuple) and len(prompt) > 0 and all(map(_is_id, prompt))


def _is_id(token: object) -> bool:
    return isinstance(token, int) and not isinstance(token, bool)


def _is_chat(prompt: object) -> TypeGuard[Sequence[Message]]:
    return (
        isinstance(prompt, list | tuple)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and {"role", "content"} <= set(message) for message in prompt)
    )
