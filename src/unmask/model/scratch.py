"""Buffers that the layers of a forward write to, kept from one forward to the next.

A name stands for one buffer, which grows to the largest size ever asked for; what was taken under a name
is overwritten by the next one who takes it.
"""

from math import prod

import torch
from torch import Tensor


class Scratch:
    """Named memory that is allocated once."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        self._buffers: dict[str, Tensor] = {}
        self.grown = 0
        """How often a buffer was replaced by a larger one."""

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape, with whatever values were left there."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            self.grown += buffer is not None
            buffer = torch.empty(size, device=self._device, dtype=self._dtype)
            self._buffers[name] = buffer
        return buffer[:size].view(shape)
