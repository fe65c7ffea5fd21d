"""Attention of one forward, made ready once and called for every layer.

Queries of a run see the same keys, so no mask is needed and no key is repeated: the query heads of a group
are stacked along the rows. Small calls are two plain products around a softmax, which on a CPU beat the fused
kernel while the scores stay in the cache; large ones take the fused kernel.

Shape legend: T rows, B segments of a run, K key/value heads, G queries a key head, N rows of a segment,
S = G * N, L visible keys, d head dim, D = K * G * d.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.model.config import ModelConfig
from unmask.model.geometry import Run
from unmask.model.kv_cache import KVCache
from unmask.model.scratch import Scratch

PLAIN_LIMIT = 1 << 16
"""Scores up to which plain products are faster than the fused kernel (docs/performance.md).

Which of the two serves a row depends on how many share its call; both give the same to rounding."""


class Attention:
    """Mixes the values that the queries of a forward see, layer by layer."""

    def __init__(
        self, config: ModelConfig, cache: KVCache, runs: Sequence[Run], queries: Tensor, scratch: Scratch
    ) -> None:
        """Make ready for queries that come row by row, [T, H, d], or head by head for a single run, [B, H, N, d]."""
        by_head = queries.dim() == len("BHNd")
        count = queries.shape[0] * queries.shape[2] if by_head else len(queries)
        self.mixed_TD = scratch.take("mixed", count, config.num_heads * config.head_dim)
        self._calls: list[_Call] = []
        may_be_plain = queries.device.type == "cpu" and queries.dtype == torch.float32
        start = 0
        for run in runs:
            stop = start + run.segments * run.rows
            rows = queries if by_head else queries[start:stop], self.mixed_TD[start:stop]
            plain = may_be_plain and _is_small(config, run)
            self._calls.append((_PlainCall if plain else _FusedCall)(config, cache, run, *rows, scratch))
            start = stop

    def __call__(self, layer: int) -> Tensor:
        """What every query mixes in this layer."""
        for call in self._calls:
            call(layer)
        return self.mixed_TD


def _is_small(config: ModelConfig, run: Run) -> bool:
    return run.segments * config.num_heads * run.rows * run.visible <= PLAIN_LIMIT


class _Call(ABC):
    """One run: how its queries are stacked, which keys it sees, and where the result goes."""

    def __init__(
        self,
        config: ModelConfig,
        cache: KVCache,
        run: Run,
        queries: Tensor,
        mixed_TD: Tensor,
        scratch: Scratch,
    ) -> None:
        batch, rows, kv_heads, group = run.segments, run.rows, config.num_kv_heads, config.queries_per_kv
        split = (batch, rows, kv_heads, group, config.head_dim)
        stacked = (batch, kv_heads, group, rows, config.head_dim)
        self.target_BKGNd = mixed_TD.view(split).permute(0, 2, 3, 1, 4)
        self.source_BKGNd: Tensor | None = None
        if queries.dim() == len("BHNd"):
            self.stacked_BKGNd = queries.view(batch, kv_heads, group, rows, config.head_dim)
        else:
            self.source_BKGNd = queries.view(split).permute(0, 2, 3, 1, 4)
            self.stacked_BKGNd = scratch.take("stacked_queries", *stacked)
        self.q_BKSd = self.stacked_BKGNd.view(batch, kv_heads, group * rows, config.head_dim)
        self.slots = run.slots if isinstance(run.slots, Tensor) else None
        seen = run.slots if isinstance(run.slots, slice) else slice(None)
        keys, values = (
            buffer[:, seen, :, : run.visible] for buffer in (cache.keys_LBKCd, cache.values_LBKCd)
        )
        if self.slots is None:
            self.keys, self.values = self.shaped_keys(keys).unbind(), self.shaped_values(values).unbind()
        else:
            self.keys, self.values = keys.unbind(), values.unbind()
            gathered = (batch, kv_heads, run.visible, config.head_dim)
            self.gathered = (
                scratch.take("gathered_keys", *gathered),
                scratch.take("gathered_values", *gathered),
            )
            self.shaped_gathered = self.shaped_keys(self.gathered[0]), self.shaped_values(self.gathered[1])
        self.prepare(config, run, scratch)

    def __call__(self, layer: int) -> None:
        """Mix the values of one layer."""
        keys, values = self.keys[layer], self.values[layer]
        if self.slots is not None:
            torch.index_select(keys, 0, self.slots, out=self.gathered[0])
            torch.index_select(values, 0, self.slots, out=self.gathered[1])
            keys, values = self.shaped_gathered
        if self.source_BKGNd is not None:
            self.stacked_BKGNd.copy_(self.source_BKGNd)
        self.target_BKGNd.copy_(self.attend(keys, values))

    @abstractmethod
    def prepare(self, config: ModelConfig, run: Run, scratch: Scratch) -> None:
        """Keep what only this way of attending needs."""

    @staticmethod
    @abstractmethod
    def shaped_keys(buffer: Tensor) -> Tensor:
        """Keys, [..., B, K, L, d], as `attend` wants them."""

    @staticmethod
    @abstractmethod
    def shaped_values(buffer: Tensor) -> Tensor:
        """Values likewise."""

    @abstractmethod
    def attend(self, keys: Tensor, values: Tensor) -> Tensor:
        """The mixed values, in the shape of the stacked queries."""


class _FusedCall(_Call):
    def prepare(self, config: ModelConfig, run: Run, scratch: Scratch) -> None:  # noqa: ARG002
        self.bias_B1SL = _stacked_bias(run, config.queries_per_kv)

    @staticmethod
    def shaped_keys(buffer: Tensor) -> Tensor:
        return buffer

    @staticmethod
    def shaped_values(buffer: Tensor) -> Tensor:
        return buffer

    def attend(self, keys: Tensor, values: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(self.q_BKSd, keys, values, attn_mask=self.bias_B1SL)
        return mixed.view(self.stacked_BKGNd.shape)


def _stacked_bias(run: Run, group: int) -> Tensor | None:
    """What hides keys from stacked queries: one row serves them all, a staircase is repeated for each head."""
    return run.bias_B11L if run.stair_NL is None else run.stair_NL.repeat(group, 1)[None, None]


class _PlainCall(_Call):
    def prepare(self, config: ModelConfig, run: Run, scratch: Scratch) -> None:
        pairs, stacked, width = run.segments * config.num_kv_heads, self.q_BKSd.shape[2], config.head_dim
        self.scale = width**-0.5
        self.q_PSd = self.q_BKSd.view(pairs, stacked, width)
        self.scores_PSL = scratch.take("scores", pairs, stacked, run.visible)
        self.mixed_PSd = scratch.take("stacked_mixed", pairs, stacked, width)
        self.mixed_BKGNd = self.mixed_PSd.view(self.stacked_BKGNd.shape)
        self.added_PSL, self.weight = self.scores_PSL, 0.0
        bias_B1SL = _stacked_bias(run, config.queries_per_kv)
        if bias_B1SL is not None:
            bias_BKSL = bias_B1SL.expand(-1, config.num_kv_heads, -1, -1)
            self.added_PSL, self.weight = bias_BKSL.reshape(pairs, -1, run.visible), 1.0

    @staticmethod
    def shaped_keys(buffer: Tensor) -> Tensor:
        return buffer.flatten(-4, -3).transpose(-1, -2)

    @staticmethod
    def shaped_values(buffer: Tensor) -> Tensor:
        return buffer.flatten(-4, -3)

    def attend(self, keys: Tensor, values: Tensor) -> Tensor:
        scores = self.scores_PSL
        torch.baddbmm(self.added_PSL, self.q_PSd, keys, beta=self.weight, alpha=self.scale, out=scores)
        torch.softmax(scores, dim=-1, out=scores)
        torch.bmm(scores, values, out=self.mixed_PSd)
        return self.mixed_BKGNd
