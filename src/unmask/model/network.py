"""Networks as data: what the layers of an architecture hold, and what its checkpoints call their tensors.

A tensor is known by its part of the network, not by its name: architectures exist that call the head and the last
product of every MLP alike. How a model decodes is its family's business (spec/family.py).
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Part = Literal[
    "embedding",
    "norm",
    "head",
    "attention_norm",
    "query",
    "key",
    "value",
    "query_bias",
    "key_bias",
    "value_bias",
    "query_norm",
    "key_norm",
    "attention_out",
    "mlp_norm",
    "gate",
    "up",
    "down",
]
LAYER = "{layer}"
"""Stands for a layer's number in the name of a tensor that every layer has."""
HF_NAMES: dict[Part, str] = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attention_norm": f"model.layers.{LAYER}.input_layernorm.weight",
    "query": f"model.layers.{LAYER}.self_attn.q_proj.weight",
    "key": f"model.layers.{LAYER}.self_attn.k_proj.weight",
    "value": f"model.layers.{LAYER}.self_attn.v_proj.weight",
    "query_bias": f"model.layers.{LAYER}.self_attn.q_proj.bias",
    "key_bias": f"model.layers.{LAYER}.self_attn.k_proj.bias",
    "value_bias": f"model.layers.{LAYER}.self_attn.v_proj.bias",
    "query_norm": f"model.layers.{LAYER}.self_attn.q_norm.weight",
    "key_norm": f"model.layers.{LAYER}.self_attn.k_norm.weight",
    "attention_out": f"model.layers.{LAYER}.self_attn.o_proj.weight",
    "mlp_norm": f"model.layers.{LAYER}.post_attention_layernorm.weight",
    "gate": f"model.layers.{LAYER}.mlp.gate_proj.weight",
    "up": f"model.layers.{LAYER}.mlp.up_proj.weight",
    "down": f"model.layers.{LAYER}.mlp.down_proj.weight",
}


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """What the architectures do not have in common; the rest is Qwen2's decoder in all of them."""

    title: str
    qkv_bias: bool = False
    """Whether the products that give queries, keys and values add a bias."""
    qk_norm: bool = False
    """Whether every head's queries and keys are normalised before they are rotated."""
    names: Mapping[Part, str]
    required: Mapping[str, Any]
    """Fields of config.json and the only values that can be run; a field may be missing or null."""


QWEN2 = Network(
    title="Qwen2",
    qkv_bias=True,
    names=HF_NAMES,
    required={"hidden_act": "silu", "use_sliding_window": False},
)
QWEN3 = Network(
    title="Qwen3",
    qk_norm=True,
    names=HF_NAMES,
    required={"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
)
LLAMA = Network(
    title="Llama",
    names=HF_NAMES,
    required={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_interleaved": False},
)
NETWORKS = {"Fast_dLLM_Qwen": QWEN2, "llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "sdar": QWEN3}
"""The `model_type` of a config.json and the network it stands for."""
