"""Rotary positions: tables of every position, and the rotation of a forward's queries and keys.

Shape legend: T rows of a forward, H heads, d head dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class RopeTables:
    """Cosines and signed sines of every position, computed in fp32 and kept in the working dtype."""

    cos_Td: Tensor
    sin_Td: Tensor

    @classmethod
    def of(cls, config: ModelConfig, length: int, device: torch.device, dtype: torch.dtype) -> "RopeTables":
        """Tabulate the rotation of the first `length` positions."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**half
        angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
        sines = angles.sin()
        return cls(
            torch.cat([angles.cos(), angles.cos()], dim=-1).to(device, dtype),
            torch.cat([-sines, sines], dim=-1).to(device, dtype),
        )

    def rotation(self, positions: slice | Tensor, source_THd: Tensor, target_THd: Tensor) -> "Rotation":
        """Make ready to rotate rows at these positions from one buffer into another."""
        sin_T1d = self.sin_Td[positions].unsqueeze(1)
        half = source_THd.shape[-1] // 2
        return Rotation(
            source_THd,
            target_THd,
            self.cos_Td[positions].unsqueeze(1),
            (
                (target_THd[..., :half], source_THd[..., half:], sin_T1d[..., :half]),
                (target_THd[..., half:], source_THd[..., :half], sin_T1d[..., half:]),
            ),
        )


@dataclass(frozen=True, slots=True)
class Rotation:
    """The half-split rotation, dimension i with i + d/2, with all views made beforehand."""

    source_THd: Tensor
    target_THd: Tensor
    cos_T1d: Tensor
    halves: tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    """For each half of the target: itself, the source's other half, and the sines with their sign."""

    def __call__(self) -> None:
        """Rotate what lies in the source now."""
        torch.mul(self.source_THd, self.cos_T1d, out=self.target_THd)
        for target, other, sin in self.halves:
            target.addcmul_(other, sin)
