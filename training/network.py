"""The network for training: Qwen2's decoder with Hugging Face's tensor names and a free choice of attention.

Shapes: B rows, T columns, D hidden, H query heads, K key-value heads, E head size. What a column may see is decided
by the `attend` function alone, so causal, block-diffusion and cached decoding share every weight and every line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q_BHTE, k_BKTE, v_BKTE) -> o_BHTE."""

_FINAL_NORM: Final = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """Sizes of the network."""

    vocabulary: int
    layers: int = 12
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 320
    rope_base: float = 1e6
    norm_epsilon: float = 1e-6
    max_positions: int = 2048

    @property
    def head_size(self) -> int:
        """Size of one attention head."""
        return self.hidden // self.heads


class Attention(nn.Module):
    """Projections and rotation; the products between columns are left to `attend`."""

    def __init__(self, config: NetworkConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.config = layer, config
        kv_size = config.kv_heads * config.head_size
        self.q_proj = nn.Linear(config.hidden, config.hidden)
        self.k_proj = nn.Linear(config.hidden, kv_size)
        self.v_proj = nn.Linear(config.hidden, kv_size)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=False)

    def forward(self, x_BTD: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Mix columns."""
        config, projections = self.config, (self.q_proj, self.k_proj, self.v_proj)
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        rows, columns, _ = x_BTD.shape
        qkv = F.linear(x_BTD, weight, bias).view(rows, columns, -1, config.head_size).transpose(1, 2)
        qk, v = torch.split(qkv, [config.heads + config.kv_heads, config.kv_heads], dim=1)
        q, k = torch.split(rotate(qk, cos, sin), [config.heads, config.kv_heads], dim=1)
        mixed = attend(self.layer, q, k, v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, columns, config.hidden))
        return out


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.feed_forward, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.feed_forward, bias=False)
        self.down_proj = nn.Linear(config.feed_forward, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each column."""
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, dim=-1)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and a residual."""

    def __init__(self, config: NetworkConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """One layer."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    """Embedding, layers and the final norm."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, config.norm_epsilon)


class Network(nn.Module):
    """The whole network; the head is the embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        frequencies = config.rope_base ** -(torch.arange(0, config.head_size, 2) / config.head_size)
        angles = torch.outer(torch.arange(config.max_positions).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def initialise(self, seed: int) -> None:
        """Draw the weights.

        Embeddings are large beside what the layers write, so that a token's identity survives the residual stream;
        the branches start at zero, and the final norm is small because head and embedding are one matrix.
        """
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            with torch.no_grad():
                if name.endswith(("bias", "o_proj.weight", "down_proj.weight")):
                    parameter.zero_()
                elif parameter.dim() == 2:
                    scale = 1.0 if "embed" in name else parameter.shape[1] ** -0.5
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            if name == "model.norm.weight":
                torch.nn.init.constant_(parameter, _FINAL_NORM)

    def forward(self, tokens_BT: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the final norm."""
        cos, sin = self.cos[positions_T], self.sin[positions_T]
        x: Tensor = self.model.embed_tokens(tokens_BT)
        for layer in self.model.layers:
            x = layer(x, cos, sin, attend)
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token for hidden states of any leading shape."""
        return F.linear(hidden, self.model.embed_tokens.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, the first half of a head paired with the second."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
