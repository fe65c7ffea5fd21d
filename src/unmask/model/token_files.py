"""The JSON files that lie beside tokenizer.json: tokens added later with their ids, and what tokens are for.

Reads JSON only and builds no tokenizer, so that the mask id of a checkpoint is found cheaply. It does not
know how text becomes ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig, read_json

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
ADDED_FILE = "added_tokens.json"
ROLES_FILE = "special_tokens_map.json"

VOCABULARY_FILE, MERGES_FILE = "vocab.json", "merges.txt"
"""What a folder without tokenizer.json has instead."""
MASK_TEXTS = ("|<MASK>|", "<|MASK|>", "<MASK>")
"""Mask tokens of checkpoints whose tokenizer_config.json names none, or one that there is not."""

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedTokenEntry:
    """A token that a file beside tokenizer.json gives an id."""

    id: int
    text: str
    flags: dict[str, bool]
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFiles:
    """What the files beside tokenizer.json say; each of them may be missing."""

    config: dict[str, Any]
    roles: dict[str, str]
    """Token texts by role: bos_token, eos_token, and so on."""
    described: tuple[AddedTokenEntry, ...]
    """Tokens of tokenizer_config.json, which knows their flags better than tokenizer.json."""
    listed: tuple[AddedTokenEntry, ...]
    """Tokens of added_tokens.json, which knows only ids; none that tokenizer_config.json describes."""

    @property
    def mask_texts(self) -> tuple[str, ...]:
        """Texts that may be the mask token, the likeliest first."""
        named = self.roles.get("mask_token")
        return (named, *MASK_TEXTS) if named else MASK_TEXTS


def tokenizer_file(folder: Path) -> Path | None:
    """The file that holds a folder's vocabulary; None where text can be neither read nor written."""
    stored, vocabulary = folder / TOKENIZER_FILE, folder / VOCABULARY_FILE
    if stored.is_file():
        return stored
    return vocabulary if vocabulary.is_file() and (folder / MERGES_FILE).is_file() else None


def read_token_files(folder: Path) -> TokenFiles:
    """Read every file beside tokenizer.json that is there."""
    config = _optional_json(folder / CONFIG_FILE)
    named = dict(config)
    if "added_tokens_decoder" not in config:
        # Only folders of before that field keep the roles in a file of their own; later it is a stale copy.
        named |= _optional_json(folder / ROLES_FILE)
    roles = {role: text for role in ROLES if (text := token_text(named.get(role)))}
    described = _described(config, folder / CONFIG_FILE)
    known = {entry.text: entry.id for entry in described}
    listed = _listed(folder / ADDED_FILE, special={*roles.values(), *_extra_special(named)})
    for entry in listed:
        if known.get(entry.text, entry.id) != entry.id:
            raise UnmaskError(
                f"{folder}: token {entry.text!r} is {known[entry.text]} in {CONFIG_FILE} but {entry.id} "
                f"in {ADDED_FILE}; download the checkpoint again."
            )
    return TokenFiles(
        config=config,
        roles=roles,
        described=described,
        listed=tuple(entry for entry in listed if entry.text not in known),
    )


def find_mask_token(folder: Path) -> int | None:
    """Return the mask token's id from the folder's JSON files, or None if they know of no mask token."""
    files = read_token_files(folder)
    return next(iter(_ids_of(files, files.mask_texts, folder)), None)


def _ids_of(files: TokenFiles, texts: Sequence[str], folder: Path) -> list[int]:
    """The ids of those of some tokens that there are."""
    known = {entry.text: entry.id for entry in (*files.listed, *files.described)}
    if texts[0] not in known:
        # Several megabytes that most checkpoints spare us.
        known = dict(_stored_tokens(folder / TOKENIZER_FILE)) | known
    return [known[text] for text in texts if text in known]


def stop_tokens_of(config: ModelConfig, folder: Path) -> tuple[int, ...]:
    """The tokens that end an answer: those that config files name, and those that the family adds."""
    texts = config.family.end_texts
    added = _ids_of(read_token_files(folder), texts, folder) if texts else []
    known = [token for token in added if token < config.vocab_size]
    return tuple(dict.fromkeys((*config.stop_tokens, *known)))


def token_text(value: Any) -> str | None:
    """Return the text of a token that a file gives as a string or as an object with its flags."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path, missing="") if path.is_file() else {}


def _extra_special(config: dict[str, Any]) -> Iterator[str]:
    for field in ("additional_special_tokens", "extra_special_tokens"):
        values = config.get(field) or ()
        for value in values.values() if isinstance(values, dict) else values:
            if text := token_text(value):
                yield text


def _described(config: dict[str, Any], source: Path) -> tuple[AddedTokenEntry, ...]:
    field = config.get("added_tokens_decoder") or {}
    broken = UnmaskError(f"{source}: added_tokens_decoder is malformed; download the checkpoint again.")
    if not isinstance(field, dict):
        raise broken
    entries = []
    for key, value in field.items():
        text = token_text(value)
        if not text or not key.isdecimal() or not isinstance(value, dict):
            raise broken
        flags = {flag: bool(value[flag]) for flag in FLAGS if flag in value}
        entries.append(AddedTokenEntry(id=int(key), text=text, flags=flags, file=source.name))
    return tuple(sorted(entries, key=lambda entry: entry.id))


def _listed(source: Path, special: set[str]) -> tuple[AddedTokenEntry, ...]:
    entries = []
    for text, number in _optional_json(source).items():
        if not text or not isinstance(number, int):
            raise UnmaskError(f"{source}: token {text!r} has no valid id; download the checkpoint again.")
        flags = {"special": text in special, "normalized": text not in special}
        entries.append(AddedTokenEntry(id=number, text=text, flags=flags, file=source.name))
    return tuple(sorted(entries, key=lambda entry: entry.id))


def _stored_tokens(source: Path) -> Iterator[tuple[str, int]]:
    stored = _optional_json(source)
    model = stored.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from vocabulary.items()
    for entry in stored.get("added_tokens") or ():
        if isinstance(entry, dict) and (text := token_text(entry)) and isinstance(entry.get("id"), int):
            yield text, entry["id"]


def mask_token_of(config: ModelConfig, folder: Path, given: int | None = None) -> int | None:
    """The mask token: as given, else the config's, else the tokenizer's; None where the family has none."""
    if not config.family.has_mask:
        if given is not None:
            raise UnmaskError(
                f"{folder} predicts one token at a time and has no mask token; leave mask_token_id out "
                "(on the command line --mask-token-id)."
            )
        return None
    mask_token = given if given is not None else config.mask_token_id
    if mask_token is None:
        mask_token = find_mask_token(folder)
    if mask_token is None:
        raise UnmaskError(
            f"{folder} names no mask token; give its id as mask_token_id (on the command line --mask-token-id)."
        )
    if not 0 <= mask_token < config.vocab_size:
        raise UnmaskError(
            f"The mask token {mask_token} is outside the vocabulary of {config.vocab_size} tokens."
        )
    return mask_token
