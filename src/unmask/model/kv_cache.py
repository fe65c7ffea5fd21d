"""Static key/value buffers: allocated once, written in place, never concatenated.

A slot holds one sequence. Positions count from the prompt's start, so the current block lies right
behind the committed prefix and is simply overwritten until it is committed. What is committed is
known to the decoder, not to the buffers.

Shape legend: L layers, B slots, K key/value heads, C positions, d head dim.
"""

import torch

from unmask.model.config import ModelConfig


class KVCache:
    """Keys and values of every layer, as [slot, kv head, position, head dim].

    The positions of a head lie side by side, so that the slots and heads of a call are one batch of products.
    """

    def __init__(
        self, config: ModelConfig, slots: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        layers, shape = config.num_layers, (slots, config.num_kv_heads, length, config.head_dim)
        # Padded attention weighs unwritten positions by zero, and zero times garbage may be NaN.
        self.both_L2BKCd = torch.zeros(layers, 2, *shape, device=device, dtype=dtype)
        self.keys_LBKCd, self.values_LBKCd = self.both_L2BKCd.unbind(1)
        self.slots = slots
        self.length = length
        self.kv_heads = config.num_kv_heads

    @property
    def key_width(self) -> int:
        """Elements of one position's keys in one layer."""
        return self.kv_heads * self.keys_LBKCd.shape[-1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Give one slot the first positions of another, in every layer."""
        both = self.both_L2BKCd
        both[:, :, target, :, :length] = both[:, :, source, :, :length]
