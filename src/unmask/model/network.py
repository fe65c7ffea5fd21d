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
BLOCK = f"model.transformer.blocks.{LAYER}"
LLADA_NAMES: dict[Part, str] = {
    "embedding": "model.transformer.wte.weight",
    "norm": "model.transformer.ln_f.weight",
    "head": "model.transformer.ff_out.weight",
    "attention_norm": f"{BLOCK}.attn_norm.weight",
    "query": f"{BLOCK}.q_proj.weight",
    "key": f"{BLOCK}.k_proj.weight",
    "value": f"{BLOCK}.v_proj.weight",
    "query_bias": f"{BLOCK}.q_proj.bias",
    "key_bias": f"{BLOCK}.k_proj.bias",
    "value_bias": f"{BLOCK}.v_proj.bias",
    "attention_out": f"{BLOCK}.attn_out.weight",
    "mlp_norm": f"{BLOCK}.ff_norm.weight",
    "gate": f"{BLOCK}.ff_proj.weight",
    "up": f"{BLOCK}.up_proj.weight",
    "down": f"{BLOCK}.ff_out.weight",
}
LLADA_FIELDS = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "vocab_size": "embedding_size",
    "tie_word_embeddings": "weight_tying",
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
    fields: Mapping[str, str] = {}
    """What config.json calls its fields, where that is not what most architectures call them."""
    bias_field: str | None = None
    """The field of config.json that says whether queries, keys and values have a bias; None: `qkv_bias` does."""
    norm_eps: float = 1e-6
    """What norms add to a mean square where config.json does not say it."""


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
LLADA = Network(
    title="LLaDA",
    names=LLADA_NAMES,
    required={
        "activation_type": "silu",
        "alibi": False,
        "attention_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "include_bias": False,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "multi_query_attention": False,
        "rope": True,
        "scale_logits": False,
    },
    fields=LLADA_FIELDS,
    bias_field="include_qkv_bias",
    norm_eps=1e-5,
)
NETWORKS = {
    "Dream": QWEN2,
    "Fast_dLLM_Qwen": QWEN2,
    "llada": LLADA,
    "llama": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "sdar": QWEN3,
}
"""The `model_type` of a config.json and the network it stands for."""
