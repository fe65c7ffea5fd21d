"""Text to token ids and back, as the checkpoint's own tokenizer does it.

Knows the `tokenizers` library and joins what the folder's files say; it does not know the network, which
works on ids alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from unmask.errors import UnmaskError
from unmask.model.chat_template import ChatTemplate, Message, read_chat_template
from unmask.model.token_files import (
    MERGES_FILE,
    TOKENIZER_FILE,
    AddedTokenEntry,
    TokenFiles,
    read_token_files,
    tokenizer_file,
)
from unmask.reading import MOST_BYTES, read_plain_text

QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What a text is cut into before merging."""


class Tokenizer:
    """A checkpoint's tokenizer with its chat template, if it has one."""

    def __init__(
        self, backend: Backend, template: ChatTemplate | None, mask_token_id: int | None, origin: str
    ) -> None:
        self._backend = backend
        self._template = template
        self._origin = origin
        self.mask_token_id = mask_token_id

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Load tokenizer.json, or Qwen2's vocabulary and merges, and the files beside it."""
        files = read_token_files(folder)
        backend = _read_backend(folder, files)
        _add_tokens(backend, files, folder)
        source = read_chat_template(folder, files.config)
        template = ChatTemplate(source, files.roles, f"the chat template of {folder}") if source else None
        ids = (backend.token_to_id(text) for text in files.mask_texts)
        mask = next((number for number in ids if number is not None), None)
        return cls(backend, template, mask, str(folder))

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be rendered."""
        return self._template is not None

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the ids of a text; `special` adds what the tokenizer puts around one, a BOS for instance.

        Special tokens written out in the text become their ids either way. A rendered chat brings its own
        surroundings and wants `special=False`.
        """
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=special).ids
        except TypeError:
            raise UnmaskError("the prompt is no valid Unicode text; read it as UTF-8.") from None
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, special tokens left out."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=True)
        return text

    def token_id(self, text: str) -> int | None:
        """Return the id of a single token, or None if there is no such token."""
        number: int | None = self._backend.token_to_id(text)
        return number

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """Return the text of a chat; a final message to be continued is left open, without a new prompt."""
        if self._template is None:
            raise UnmaskError(
                f"{self._origin} has no chat template; "
                "give the prompt as text or token ids, or put a chat_template.jinja into the folder."
            )
        return self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )


def _read_backend(folder: Path, files: TokenFiles) -> Backend:
    file = tokenizer_file(folder)
    is_stored = file is not None and file.name == TOKENIZER_FILE
    kind = str(files.config.get("tokenizer_class")).removesuffix("Fast")
    if file is None or not (is_stored or kind == "Qwen2Tokenizer"):
        raise UnmaskError(
            f"{folder} has no {TOKENIZER_FILE}, so text can be neither encoded nor decoded; "
            "give prompts as token ids, or copy the original checkpoint's tokenizer files into the folder."
        )
    try:
        backend = _stored_backend(file) if is_stored else _qwen2_backend(file)
    except (
        BaseException
    ) as error:  # the library raises nothing more specific, and a panic of it is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UnmaskError(
            f"{file} cannot be read as a tokenizer ({error}); "
            "give prompts as token ids, or download the checkpoint again."
        ) from None
    # Settings left over from training would cut or pad prompts silently.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _stored_backend(file: Path) -> Backend:
    return Backend.from_str(read_plain_text(file, MOST_BYTES))


def _qwen2_backend(file: Path) -> Backend:
    """The tokenizer that Qwen2's vocabulary and merges belong to."""
    vocabulary = json.loads(read_plain_text(file, MOST_BYTES))
    lines = read_plain_text(file.with_name(MERGES_FILE), MOST_BYTES).split("\n")
    pairs = (line.split(" ") for line in lines if line and not line.startswith("#version"))
    backend = Backend(models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs]))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_tokens(backend: Backend, files: TokenFiles, folder: Path) -> None:
    missing = [entry for entry in files.listed if backend.token_to_id(entry.text) is None]
    # The library numbers new tokens itself, one after the other: added in order they get the ids written.
    for entry in sorted((*files.described, *missing), key=lambda entry: entry.id):
        backend.add_tokens([AddedToken(entry.text, **entry.flags)])
    for entry in (*files.described, *files.listed):
        _check_id(backend, entry, folder)


def _check_id(backend: Backend, entry: AddedTokenEntry, folder: Path) -> None:
    number = backend.token_to_id(entry.text)
    if number != entry.id:
        raise UnmaskError(
            f"{folder}: token {entry.text!r} is {entry.id} in {entry.file} but {number} by {TOKENIZER_FILE}; "
            "the files belong to different versions, so download them again."
        )
