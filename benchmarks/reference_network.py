"""The decoder of Qwen2, and LLaDA's, as a model in the transformers style, for comparison with Unmask's engine only.

Knows the network of SPEC section 1 the way a library of models writes it: one module a part, separate
q, k, v, gate and up products with weights as the checkpoint stores them, keys and values that grow by
concatenation and are repeated for every query head, a mask for every forward, logits of all rows fed.
It does not know how blocks are denoised (see reference.py and canvas_reference.py) and shares no code with
`unmask.model`.
`honesty.py` measures that it is not slower than transformers' own Qwen2.

Shape legend: B rows of the batch, T tokens fed, L keys seen, D hidden, H query heads, K key/value heads,
d head dim, V vocabulary.
"""

import json
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

Config = dict[str, Any]


class Cache(Protocol):
    """What a layer asks for the keys and values that its queries see."""

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:
        """Take those of the tokens fed, and return all that are seen."""
        ...


class GrowingCache:
    """Keys and values of every layer, longer by the tokens fed after each forward."""

    def __init__(self) -> None:
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return what the queries see."""
        if layer in self.keys:
            k_BKTd = torch.cat([self.keys[layer], k_BKTd], dim=2)
            v_BKTd = torch.cat([self.values[layer], v_BKTd], dim=2)
        self.keys[layer], self.values[layer] = k_BKTd, v_BKTd
        return k_BKTd, v_BKTd

    def keep(self, rows_B: Tensor) -> None:
        """Drop all other rows of the batch."""
        self.keys = {layer: keys[rows_B] for layer, keys in self.keys.items()}
        self.values = {layer: values[rows_B] for layer, values in self.values.items()}


class BlockCache:
    """Keys and values of the block being denoised, behind a prefix that stays as it is."""

    def __init__(self, prefix: GrowingCache) -> None:
        self.prefix = prefix
        self.block = GrowingCache()
        self.offset = 0
        """Where in the block the tokens of the next forward lie."""

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:
        """Overwrite the fed tokens' part of the block, and return prefix and block in one piece."""
        block = self.block
        if layer in block.keys:
            fed = slice(self.offset, self.offset + k_BKTd.shape[2])
            block.keys[layer][:, :, fed] = k_BKTd
            block.values[layer][:, :, fed] = v_BKTd
        else:
            block.keys[layer], block.values[layer] = k_BKTd, v_BKTd
        if layer not in self.prefix.keys:
            return block.keys[layer], block.values[layer]
        return (
            torch.cat([self.prefix.keys[layer], block.keys[layer]], dim=2),
            torch.cat([self.prefix.values[layer], block.values[layer]], dim=2),
        )


class RMSNorm(nn.Module):
    """Root-mean-square norm in fp32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Scale every token to unit mean square."""
        wide = x_BTD.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x_BTD.dtype)


class Attention(nn.Module):
    """Grouped-query attention under an explicit mask."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        hidden, heads, kv_heads = (
            config["hidden_size"],
            config["num_attention_heads"],
            config["num_key_value_heads"],
        )
        self.index, self.head_dim, self.group = index, hidden // heads, heads // kv_heads
        bias = config.get("attention_bias", True)
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * self.head_dim, hidden, bias=False)

    def forward(
        self, x_BTD: Tensor, rope: tuple[Tensor, Tensor], mask_11TL: Tensor | None, cache: Cache
    ) -> Tensor:
        """Mix the fed tokens with everything the cache holds."""
        q_BHTd, k_BKTd, v_BKTd = (
            projection(x_BTD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q_BHTd, k_BKTd = _rotate(q_BHTd, *rope), _rotate(k_BKTd, *rope)
        k_BKLd, v_BKLd = cache.update(self.index, k_BKTd, v_BKTd)
        mixed_BHTd = scaled_dot_product_attention(
            q_BHTd, _repeat(k_BKLd, self.group), _repeat(v_BKLd, self.group), attn_mask=mask_11TL
        )
        return self.o_proj(mixed_BHTd.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, width = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the branch's change of the stream."""
        return self.down_proj(silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))


class Layer(nn.Module):
    """Two residual branches."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config, index)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = MLP(config)

    def forward(
        self, x_BTD: Tensor, rope: tuple[Tensor, Tensor], mask_11TL: Tensor | None, cache: Cache
    ) -> Tensor:
        """Return the stream after this layer."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), rope, mask_11TL, cache)
        return x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))


class Stack(nn.Module):
    """Embedding, layers and final norm, under the names that checkpoints use."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class ReferenceNetwork(nn.Module):
    """The whole network: token ids in, logits of every fed token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Stack(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    @classmethod
    def load(cls, folder: Path) -> "ReferenceNetwork":
        """Take config.json and model.safetensors of a folder.

        Weights stay where the file is mapped, as transformers leaves them, so that the place of the
        weights in memory is no difference between the two.
        """
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        stored = load_file(folder / "model.safetensors")
        if config["model_type"] == "llada":
            config, stored = _from_llada(config, stored)
        if config["tie_word_embeddings"]:
            stored["lm_head.weight"] = stored["model.embed_tokens.weight"]
        with torch.device("meta"):
            network = cls(config)
        network.load_state_dict(stored, assign=True)
        return network.eval().requires_grad_(False)

    def forward(
        self, tokens_BT: Tensor, positions_T: Tensor, mask_11TL: Tensor | None, cache: Cache
    ) -> Tensor:
        """Feed tokens at absolute positions; the mask is true where a query sees a key, None lets it see all."""
        x_BTD = self.model.embed_tokens(tokens_BT)
        rope = self._rope(positions_T, x_BTD.dtype)
        for layer in self.model.layers:
            x_BTD = layer(x_BTD, rope, mask_11TL, cache)
        return self.lm_head(self.model.norm(x_BTD))

    def _rope(self, positions_T: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        width = self.config["hidden_size"] // self.config["num_attention_heads"]
        exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
        angles_Td = positions_T[:, None].float() * self.config["rope_theta"] ** -exponents
        angles_Td = torch.cat([angles_Td, angles_Td], dim=-1)
        return angles_Td.cos().to(dtype), angles_Td.sin().to(dtype)


LLADA_FIELDS = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "mlp_hidden_size": "intermediate_size",
    "weight_tying": "tie_word_embeddings",
}
LLADA_NAMES = {
    "wte": "model.embed_tokens",
    "ln_f": "model.norm",
    "ff_out": "lm_head",
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    **{f"{name}_proj": f"self_attn.{name}_proj" for name in "qkv"},
}
"""LLaDA's words for the same things; `ff_out` is the head, and inside of a layer the last product of the MLP."""


def _from_llada(config: Config, stored: dict[str, Tensor]) -> tuple[Config, dict[str, Tensor]]:
    renamed = {}
    for name, tensor in stored.items():
        *layer, part, kind = name.removeprefix("model.transformer.").split(".")
        target = "mlp.down_proj" if layer and part == "ff_out" else LLADA_NAMES[part]
        renamed[".".join([*(("model", "layers", layer[-1]) if layer else ()), target, kind])] = tensor
    fields = {LLADA_FIELDS.get(name, name): value for name, value in config.items()}
    return fields | {"attention_bias": False}, renamed


def _rotate(x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
    first, second = x_BHTd.chunk(2, dim=-1)
    return x_BHTd * cos_Td + torch.cat([-second, first], dim=-1) * sin_Td


def _repeat(x_BKLd: Tensor, group: int) -> Tensor:
    """Copy each key/value head once for every query head that uses it."""
    return x_BKLd if group == 1 else x_BKLd.repeat_interleave(group, dim=1)
