"""Who sees whom in training: causal attention, and block diffusion over a clean stream and noised copies.

Columns of block diffusion lie as `[clean blocks | noised copy | noised copy]`. A column of block b, in any
stream, sees the clean blocks before b and all of its own block in its own stream. Each group of equal visibility
is one product without a mask, so nothing that is hidden is ever computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StreamLayout:
    """Where the streams of block diffusion lie: `blocks` in all, noised from `first` on, the last never clean."""

    block: int
    first: int
    blocks: int
    copies: int = 2

    @property
    def clean_blocks(self) -> int:
        """Clean blocks fed; nobody looks at a clean last block, so it is left out."""
        return self.blocks - 1

    @property
    def columns(self) -> int:
        """All columns of a row."""
        return self.block * (self.clean_blocks + self.copies * (self.blocks - self.first))

    def start(self, stream: int, block: int) -> int:
        """First column of a block; stream 0 is clean, 1 and above are the copies."""
        if stream == 0:
            return block * self.block
        return self.block * (
            self.clean_blocks + (stream - 1) * (self.blocks - self.first) + block - self.first
        )

    def streams_of(self, block: int) -> list[int]:
        """The streams that contain a block."""
        clean = [0] if block < self.clean_blocks else []
        return clean + (list(range(1, self.copies + 1)) if block >= self.first else [])

    def positions(self) -> Tensor:
        """The position of every column in its sequence."""
        clean = torch.arange(self.clean_blocks * self.block)
        noised = torch.arange(self.first * self.block, self.blocks * self.block)
        return torch.cat([clean] + [noised] * self.copies)

    def attend(self, _layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention under this layout."""
        parts: dict[int, Tensor] = {}
        for block in range(self.blocks):
            past = slice(0, block * self.block)
            starts = [self.start(stream, block) for stream in self.streams_of(block)]
            spans = [slice(start, start + self.block) for start in starts]
            queries = torch.cat([q[:, :, span] for span in spans])
            keys = torch.cat([torch.cat([k[:, :, past], k[:, :, span]], dim=2) for span in spans])
            values = torch.cat([torch.cat([v[:, :, past], v[:, :, span]], dim=2) for span in spans])
            mixed = attend_to_all(queries, keys, values).chunk(len(starts))
            parts.update(zip(starts, mixed, strict=True))
        return torch.cat([parts[start] for start in sorted(parts)], dim=2)


def attend_to_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every query sees every key; the query heads of a group are stacked as further queries."""
    rows, heads, columns, size = q.shape
    grouped = q.reshape(rows, k.shape[1], -1, size)
    return F.scaled_dot_product_attention(grouped, k, v).view(rows, heads, columns, size)


def attend_causally(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every query sees itself and what lies before it."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attend_causally_within(documents_BT: Tensor) -> Callable[[int, Tensor, Tensor, Tensor], Tensor]:
    """Causal attention in which a query sees only its own document of a packed row."""
    columns = documents_BT.shape[1]
    past = torch.ones(columns, columns, dtype=torch.bool, device=documents_BT.device).tril()
    mask = (documents_BT[:, None, :, None] == documents_BT[:, None, None, :]) & past

    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


def visibility(layout: StreamLayout) -> Tensor:
    """The block-diffusion mask written out, query by key, as a definition to test `attend` against."""
    stream = torch.empty(layout.columns, dtype=torch.long)
    block = torch.empty(layout.columns, dtype=torch.long)
    for index in range(layout.blocks):
        for copy in layout.streams_of(index):
            start = layout.start(copy, index)
            stream[start : start + layout.block] = copy
            block[start : start + layout.block] = index
    own = (stream[:, None] == stream[None, :]) & (block[:, None] == block[None, :])
    clean_past = (stream[None, :] == 0) & (block[None, :] < block[:, None])
    return own | clean_past
