"""What a caller may pass as a prompt, and the one place that makes checked token ids of it.

Text is encoded as it stands, or put through the checkpoint's chat template where `chat` asks for it; messages
always are. Knows a tokenizer and a model's limits; needs no weights and no torch, so that a prompt can be
refused before anything is loaded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig

if TYPE_CHECKING:
    from unmask.model.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, str]
NO_PROMPT = "A prompt must be a string, a list of token ids, or a list of {role, content} messages."
EMPTY = "A prompt is empty; give at least one token."


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt with settings of its own."""

    prompt: str | Sequence[int] | Sequence[Message]
    """Text, token ids, or chat messages."""
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
        raise UnmaskError(EMPTY)
    raise UnmaskError(NO_PROMPT)


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    """Makes token ids of prompts, and refuses what a model cannot take."""

    config: ModelConfig
    mask_token: int | None
    tokenizer: Callable[[], "Tokenizer"]
    """Called where text is to be encoded; token ids need none."""

    def ids(self, request: Request, chat: bool = False) -> list[int]:
        """The token ids of a request's prompt."""
        prompt, ids = request.prompt, list[int]()
        if isinstance(prompt, str):
            ids = self._text_ids(prompt, chat) if prompt else []
        elif _is_chat(prompt):
            ids = self._chat_ids(prompt)
        elif _is_ids(prompt):
            ids = list(prompt)
        else:
            _as_request(prompt)
        if not ids:
            raise UnmaskError(EMPTY)
        self._refuse_unfit(ids)
        return ids

    def _text_ids(self, text: str, chat: bool) -> list[int]:
        if chat:
            return self._chat_ids([{"role": "user", "content": text}])
        return self.tokenizer().encode(text)

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        tokenizer = self.tokenizer()
        return tokenizer.encode(tokenizer.render_chat(messages), special=False)

    def _refuse_unfit(self, ids: Sequence[int]) -> None:
        context, vocabulary = self.config.max_positions, self.config.vocab_size
        if len(ids) >= context:
            raise UnmaskError(
                f"A prompt has {len(ids)} tokens but the model's context is {context}; shorten it."
            )
        out_of_range = [token for token in ids if not 0 <= token < vocabulary]
        if out_of_range:
            raise UnmaskError(f"Token id {out_of_range[0]} is outside the vocabulary of {vocabulary} tokens.")
        if self.mask_token in ids:
            raise UnmaskError(
                f"A prompt holds the mask token {self.mask_token}, which stands for unknown positions; leave it out."
            )


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
