"""Rows as token ids, with what is given, what is learned and which tokens are digits."""

from __future__ import annotations

import dataclasses
from typing import Final

from tokenizers import Tokenizer

from training.curriculum.rows import Row
from training.vocabulary import END_TOKEN, MASK_TOKEN, PAD_TOKEN

_WEIGHTS: Final = {"choice": 5.0, "choice_text": 2.0, "option_drill": 2.0}
"""Replies of few tokens count more, or the long chains would drown them."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """One training example. Tokens before `given` are the prompt; `learned` says which others carry loss."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    given: int
    drill: bool
    late: tuple[bool, ...] = ()
    """Numbers that decoding knows only after everything before them; empty stands for none."""
    weight: float = 1.0

    def first_block(self, size: int) -> int:
        """The block in which the reply starts."""
        return self.given // size

    def blocks(self, size: int) -> int:
        """How many blocks prompt and reply take."""
        return -(-len(self.ids) // size)


class Encoder:
    """Encodes rows with one tokenizer and knows its special ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = _id(tokenizer, END_TOKEN)
        self.pad = _id(tokenizer, PAD_TOKEN)
        self.mask = _id(tokenizer, MASK_TOKEN)
        self._digits = frozenset(_id(tokenizer, digit) for digit in "0123456789")
        self._open, self._equals = _id(tokenizer, "<<"), _id(tokenizer, "=")

    def encode(self, row: Row) -> Encoded:
        """Encode one row; a reply ends with the stop token, a drill does not."""
        ids: list[int] = self.tokenizer.encode(row.prompt).ids
        given, learned = len(ids), [False] * len(ids)
        for text, is_learned in row.reply:
            piece = self.tokenizer.encode(text).ids
            ids += piece
            learned += [is_learned] * len(piece)
        drill = given == 0
        if drill:
            given = learned.index(True)
        else:
            ids.append(self.end)
            learned.append(True)
        return Encoded(
            ids=tuple(ids),
            learned=tuple(learned),
            given=given,
            drill=drill,
            late=self._late(ids),
            weight=_WEIGHTS.get(row.kind, 1.0),
        )

    def _late(self, ids: list[int]) -> tuple[bool, ...]:
        """All digits except the operands that a calculator note repeats."""
        late, repeating = [], False
        for token in ids:
            repeating = (repeating or token == self._open) and token != self._equals
            late.append(token in self._digits and not repeating)
        return tuple(late)


def _id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no token {token!r}")
    return int(found)
