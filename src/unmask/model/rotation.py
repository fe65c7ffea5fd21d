"""Rotary positions: tables of every position, and the rotation of a forward's queries and keys.

The two numbers that turn together lie side by side, as one complex number: weights are put in that order when
they are loaded (`side_by_side`). Checkpoints have them half a head apart, which is the same to a product of
queries and keys, and to nothing else.

Shape legend: T rows of a forward, H heads, d head dim, h = d / 2 pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.model.config import ModelConfig


def side_by_side(weights: Tensor, width: int) -> Tensor:
    """Rows of heads, `width` of them each, as checkpoints store them, in the order of the rotation here."""
    heads = weights.view(-1, 2, width // 2, *weights.shape[1:])
    return heads.transpose(1, 2).reshape(weights.shape)


@dataclass(frozen=True, slots=True)
class RopeTables:
    """The angles of every position: complex numbers in fp32, else cosines and sines in the working dtype."""

    cos_Th: Tensor
    sin_Th: Tensor
    turns_Th: Tensor | None

    @classmethod
    def of(cls, config: ModelConfig, length: int, device: torch.device, dtype: torch.dtype) -> "RopeTables":
        """Tabulate the rotation of the first `length` positions."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**half
        angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
        cos_Th, sin_Th = angles.cos(), angles.sin()
        # Half precision has no complex products everywhere, and a Mac's GPU has none.
        turns_Th = None
        if dtype == torch.float32 and device.type != "mps":
            turns_Th = torch.complex(cos_Th, sin_Th).to(device)
        return cls(cos_Th.to(device, dtype), sin_Th.to(device, dtype), turns_Th)

    def rotation(
        self, positions: slice | Tensor, source: Tensor, target: Tensor, unturned: int = 0
    ) -> Callable[[], None]:
        """Make ready to rotate rows at these positions from one buffer into another, [..., H, d]; the last heads,
        `unturned` of them, are copied."""
        if self.turns_Th is not None:
            turns = _of_heads(self.turns_Th[positions], source, unturned, 1)
            source_c, target_c = (
                torch.view_as_complex(each.view(*each.shape[:-1], -1, 2)) for each in (source, target)
            )

            def turn() -> None:
                torch.mul(source_c, turns, out=target_c)

            return turn
        cos = _of_heads(self.cos_Th[positions], source, unturned, 1).repeat_interleave(2, dim=-1)
        sin = _of_heads(self.sin_Th[positions], source, unturned, 0)
        against = sin.neg()

        def turn_in_parts() -> None:
            torch.mul(source, cos, out=target)
            target[..., 0::2].addcmul_(source[..., 1::2], against)
            target[..., 1::2].addcmul_(source[..., 0::2], sin)

        return turn_in_parts


def _of_heads(table_Th: Tensor, source: Tensor, unturned: int, rest: int) -> Tensor:
    """A table's rows for all heads of a buffer alike, but for the last ones, which have `rest`."""
    *rows, heads, _ = source.shape
    table = table_Th.view(*rows, 1, -1)
    if not unturned:
        return table
    plain = torch.full_like(table, rest).expand(*rows, unturned, -1)
    return torch.cat([table.expand(*rows, heads - unturned, -1), plain], dim=-2)
