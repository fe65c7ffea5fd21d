"""Everything that the layers of one forward share besides their weights, with all views made once.

Knows where a forward's rows lie in the buffers and which keys they see. It does not know what the rows are.

Shape legend: T rows, D hidden, X heads (queries, then keys, then values), K key/value heads, d head dim, L layers,
B slots, C positions of a slot.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unmask.model.attention import Attention
from unmask.model.config import ModelConfig
from unmask.model.geometry import Geometry, Stretch
from unmask.model.kv_cache import KVCache
from unmask.model.rotation import RopeTables
from unmask.model.scratch import Scratch


class Frame:
    """Buffers of one forward: a layer leaves its products here and finds its keys here."""

    def __init__(
        self, config: ModelConfig, cache: KVCache, geometry: Geometry, rope: RopeTables, scratch: Scratch
    ) -> None:
        self.geometry = geometry
        rows, width, heads = geometry.rows, config.head_dim, config.num_heads
        turned, every = heads + config.num_kv_heads, heads + 2 * config.num_kv_heads
        self.length_T1 = scratch.take("length", rows, 1)
        self.normed_TD = scratch.take("normed", rows, config.hidden_size)
        self.qkv_TX = scratch.take("qkv", rows, every * width)
        qkv_TXd = self.qkv_TX.view(rows, every, width)
        self.qk_TXd = qkv_TXd[:, :turned]
        self.queries_THd, self.keys_TKd = qkv_TXd[:, :heads], qkv_TXd[:, heads:turned]
        if config.network.qk_norm:
            self.head_length_TX1 = scratch.take("head_length", rows, turned, 1)
        self._writes: list[Callable[[int], object]]
        if self.qkv_TX.device.type == "cpu":
            rotated_TXd = scratch.take("rotated", rows, turned, width)
            self.rotate = rope.rotation(geometry.positions, self.qk_TXd, rotated_TXd)
            self.attend = Attention(config, cache, geometry.runs, rotated_TXd[:, :heads], scratch)
            self._writes = [
                _writer(cache.keys_LBKCd, geometry.writes, rotated_TXd[:, heads:], scratch),
                _writer(cache.values_LBKCd, geometry.writes, qkv_TXd[:, turned:], scratch),
            ]
            return
        # Operations are what costs elsewhere: values go along with the rotation, so that one write takes all, and
        # where all rows share a call the rotation leaves queries as that call wants them.
        calls, only = geometry.runs, geometry.runs[0]
        split = (only.segments, only.rows) if len(calls) == 1 else (1, rows)
        rotated_BXNd = scratch.take("rotated", split[0], every, split[1], width)
        rotated_BNXd = rotated_BXNd.transpose(1, 2)
        source_BNXd = qkv_TXd.view(*split, every, width)
        self.rotate = rope.rotation(geometry.positions, source_BNXd, rotated_BNXd, config.num_kv_heads)
        queries = rotated_BXNd[:, :heads] if len(calls) == 1 else rotated_BNXd[0, :, :heads]
        self.attend = Attention(config, cache, calls, queries, scratch)
        kinds_BN2Kd = rotated_BNXd[:, :, heads:].view(*split, 2, config.num_kv_heads, width)
        self._writes = [_joint_writer(cache, geometry.writes, kinds_BN2Kd)]

    def write(self, layer: int) -> None:
        """Put the rows' keys and values where queries find them."""
        for write in self._writes:
            write(layer)


def _writer(
    buffer_LBKCd: Tensor, places: Stretch | Tensor, rows_TKd: Tensor, scratch: Scratch
) -> Callable[[int], object]:
    """Make ready to copy rows into a layer's buffer."""
    if isinstance(places, Stretch):
        targets_TKd = buffer_LBKCd[:, places.slot, :, places.positions].transpose(1, 2).unbind()
        return lambda layer: targets_TKd[layer].copy_(rows_TKd)
    flat_Rd = buffer_LBKCd.flatten(1, 3).unbind()
    places_P = places.flatten()
    side_by_side = scratch.take("written", *rows_TKd.shape)
    rows_Pd = side_by_side.flatten(0, 1)

    def write(layer: int) -> None:
        side_by_side.copy_(rows_TKd)
        flat_Rd[layer].index_copy_(0, places_P, rows_Pd)

    return write


def _joint_writer(cache: KVCache, places: Stretch | Tensor, rows_BN2Kd: Tensor) -> Callable[[int], object]:
    """Make ready to copy rows' keys and values into a layer's buffer, both in one operation."""
    both_L2BKCd = cache.both_L2BKCd
    if isinstance(places, Stretch):
        targets_2KNd = both_L2BKCd[:, :, places.slot, :, places.positions].unbind()
        rows_2KNd = rows_BN2Kd[0].permute(1, 2, 0, 3)
        return lambda layer: targets_2KNd[layer].copy_(rows_2KNd)
    flat_Rd = both_L2BKCd.flatten(1, 4).unbind()
    of_values = both_L2BKCd[0, 0].numel() // both_L2BKCd.shape[-1]
    places_BN2K = torch.stack([places, places + of_values], dim=1).view(rows_BN2Kd.shape[:-1])
    return lambda layer: flat_Rd[layer].index_put_((places_BN2K,), rows_BN2Kd)
