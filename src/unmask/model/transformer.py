"""The Qwen2 decoder in plain PyTorch, as two branches a layer that add to a residual stream.

Knows the arithmetic of one layer and of the head. It does not know about blocks, masks, denoising
steps or policies: the engine decides which branches run on which rows (see engine/forward.py).

Shape legend: T rows of a forward, D hidden, H query heads, K key/value heads, G queries a key head,
d head dim, F MLP width, V vocabulary, N rows whose logits are read.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.model.config import ModelConfig
from unmask.model.geometry import Geometry, Run
from unmask.model.kv_cache import KVCache
from unmask.model.projection import Projection


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer; queries, keys and values are one product, gate and up another."""

    attention_norm_D: Tensor
    qkv: Projection
    attention_out: Projection
    mlp_norm_D: Tensor
    gate_up: Projection
    down: Projection


@dataclass(frozen=True, slots=True)
class RopeTables:
    """Cosines and signed sines of every position, computed in fp32 and kept in the working dtype."""

    cos_Td: Tensor
    sin_Td: Tensor

    @classmethod
    def of(cls, config: ModelConfig, columns: int, device: torch.device, dtype: torch.dtype) -> "RopeTables":
        """Tabulate the rotation of the first `columns` positions."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**half
        angles = torch.arange(columns, dtype=torch.float32)[:, None] * frequencies
        sines = angles.sin()
        return cls(
            torch.cat([angles.cos(), angles.cos()], dim=-1).to(device, dtype),
            torch.cat([-sines, sines], dim=-1).to(device, dtype),
        )

    def at(self, positions: slice | Tensor) -> "RopeTables":
        """Select rows, with an axis for the heads."""
        return RopeTables(self.cos_Td[positions].unsqueeze(1), self.sin_Td[positions].unsqueeze(1))

    def rotate(self, x_THd: Tensor) -> Tensor:
        """Apply the half-split rotation: dimension i pairs with i + d/2."""
        swapped = x_THd.roll(x_THd.shape[-1] // 2, dims=-1)
        return (x_THd * self.cos_Td).addcmul_(swapped, self.sin_Td)


class Transformer:
    """Embedding, layers and head; every method is a pure function of its inputs, but for the key cache."""

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        layers: tuple[Layer, ...],
        norm_D: Tensor,
        head: Projection,
    ) -> None:
        self.config = config
        self.embedding_VD = embedding_VD
        self.layers = layers
        self.norm_D = norm_D
        self.head = head

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding_VD.device

    @property
    def dtype(self) -> torch.dtype:
        """The working dtype."""
        return self.embedding_VD.dtype

    def embed(self, tokens_T: Tensor) -> Tensor:
        """Look up the residual stream's first state."""
        return F.embedding(tokens_T, self.embedding_VD)

    def attention(
        self, index: int, x_TD: Tensor, cache: KVCache, geometry: Geometry, rope: RopeTables
    ) -> Tensor:
        """Return the attention branch's change of the stream; writes the rows' keys and values."""
        config, layer = self.config, self.layers[index]
        heads, kv_heads = config.num_heads, config.num_kv_heads
        qkv_TXd = layer.qkv(self._norm(x_TD, layer.attention_norm_D)).view(
            x_TD.shape[0], heads + 2 * kv_heads, config.head_dim
        )
        qk_TXd = rope.rotate(qkv_TXd[:, : heads + kv_heads])
        _write(cache.flat_keys[index], geometry.writes, qk_TXd[:, heads:])
        _write(cache.flat_values[index], geometry.writes, qkv_TXd[:, heads + kv_heads :])
        mixed_TD = self._attend(qk_TXd[:, :heads], cache.keys[index], cache.values[index], geometry.runs)
        return layer.attention_out(mixed_TD)

    def mlp(self, index: int, x_TD: Tensor) -> Tensor:
        """Return the MLP branch's change of the stream."""
        layer = self.layers[index]
        gate_TF, up_TF = layer.gate_up(self._norm(x_TD, layer.mlp_norm_D)).chunk(2, dim=-1)
        return layer.down(F.silu(gate_TF).mul_(up_TF))

    def logits(self, x_ND: Tensor) -> Tensor:
        """Read final hidden states as next-token logits in fp32."""
        return self.head(self._norm(x_ND, self.norm_D)).float()

    def _norm(self, x_TD: Tensor, weight_D: Tensor) -> Tensor:
        if x_TD.dtype == torch.float32:
            return F.rms_norm(x_TD, (x_TD.shape[-1],), weight_D, self.config.rms_norm_eps)
        scaled = F.rms_norm(x_TD.float(), (x_TD.shape[-1],), None, self.config.rms_norm_eps)
        return scaled.to(x_TD.dtype) * weight_D

    def _attend(self, q_THd: Tensor, keys: Tensor, values: Tensor, runs: tuple[Run, ...]) -> Tensor:
        if len(runs) == 1:
            return self._attend_run(q_THd, keys, values, runs[0])
        parts, start = [], 0
        for run in runs:
            stop = start + run.segments * run.rows
            parts.append(self._attend_run(q_THd[start:stop], keys, values, run))
            start = stop
        return torch.cat(parts)

    def _attend_run(self, q_THd: Tensor, keys: Tensor, values: Tensor, run: Run) -> Tensor:
        """Attend with the query heads of a group stacked along the rows, so that no key is repeated."""
        batch, rows, kv_heads, group = (
            run.segments,
            run.rows,
            self.config.num_kv_heads,
            self.config.queries_per_kv,
        )
        width = self.config.head_dim
        q_BKSd = (
            q_THd.view(batch, rows, kv_heads, group, width)
            .permute(0, 2, 3, 1, 4)
            .reshape(batch, kv_heads, group * rows, width)
        )
        k_BKLd = keys[run.slots, : run.visible].transpose(1, 2)
        v_BKLd = values[run.slots, : run.visible].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q_BKSd, k_BKLd, v_BKLd, attn_mask=run.bias_B11L)
        return (
            mixed.view(batch, kv_heads, group, rows, width)
            .permute(0, 3, 1, 2, 4)
            .reshape(batch * rows, kv_heads * group * width)
        )


def _write(buffer: Tensor, places: slice | Tensor, rows: Tensor) -> None:
    if isinstance(places, slice):
        buffer[places] = rows
    else:
        buffer.index_copy_(0, places, rows)
