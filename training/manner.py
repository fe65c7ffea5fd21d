"""The two manners in which a model is trained: how it is decoded while training runs, and how it is published."""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from training.canvas_decoding import decode_canvas
from training.decoding import decode
from training.network import Network
from training.publication import LLADA, QWEN, Publication


class Decode(Protocol):
    """Decodes prompts greedily."""

    def __call__(
        self, network: Network, prompts: list[list[int]], *, mask: int, stop: int, threshold: float = 0.9
    ) -> list[list[int]]:
        """The tokens after each prompt up to and with the stop token."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """What differs between the manners beside the batches."""

    decode: Decode
    publication: Publication


BLOCKS: Final = Manner(decode=decode, publication=QWEN)
"""Block diffusion as Fast-dLLM v2 does it: blocks one after another, logits at i predict i + 1."""
CANVAS: Final = Manner(decode=decode_canvas, publication=LLADA)
"""LLaDA: the reply lies on a canvas of masks that everything sees, logits at i predict i."""
