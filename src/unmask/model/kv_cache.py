"""Static key/value buffers: allocated once, written in place, never concatenated.

A slot holds one request. Columns are absolute token positions, so the current block lies right
behind the committed prefix and is simply overwritten until it is committed. What is committed is
known to the decoder, not to the buffers.
"""

import torch
from torch import Tensor

from unmask.model.config import ModelConfig


class KVCache:
    """Keys and values of every layer, as [slot, column, kv head, head dim]."""

    def __init__(
        self, config: ModelConfig, slots: int, columns: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        shape = (config.num_layers, 2, slots, columns, config.num_kv_heads, config.head_dim)
        # Padded attention weighs unwritten columns by zero, and zero times garbage may be NaN.
        storage = torch.zeros(shape, device=device, dtype=dtype)
        self.slots = slots
        self.columns = columns
        self.keys: tuple[Tensor, ...] = tuple(layer[0] for layer in storage)
        self.values: tuple[Tensor, ...] = tuple(layer[1] for layer in storage)
        self.flat_keys = tuple(keys.view(slots * columns, *keys.shape[2:]) for keys in self.keys)
        self.flat_values = tuple(values.view(slots * columns, *values.shape[2:]) for values in self.values)
