"""Under which names a network's tensors and sizes are published."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final

from training.network import NetworkConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """Names of tensors and fields of config.json, without the ids of special tokens."""

    fields: Callable[[NetworkConfig], dict[str, Any]]
    tensor_name: Callable[[str], str]
    max_new_tokens: int


def _qwen_fields(config: NetworkConfig) -> dict[str, Any]:
    return {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "vocab_size": config.vocabulary,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_base,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bd_size": 32,
    }


def _llada_fields(config: NetworkConfig) -> dict[str, Any]:
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": config.hidden,
        "n_heads": config.heads,
        "n_kv_heads": config.kv_heads,
        "n_layers": config.layers,
        "mlp_hidden_size": config.feed_forward,
        "vocab_size": config.vocabulary,
        "embedding_size": config.vocabulary,
        "rope": True,
        "rope_theta": config.rope_base,
        "rope_full_precision": True,
        "rms_norm_eps": config.norm_epsilon,
        "layer_norm_type": "rms",
        "block_type": "llama",
        "activation_type": "silu",
        "weight_tying": True,
        "include_bias": False,
        "include_qkv_bias": True,
        "max_sequence_length": config.max_positions,
        "use_cache": False,
        "scale_logits": False,
        "input_emb_norm": False,
        "attention_layer_norm": False,
        "alibi": False,
        "block_group_size": 1,
    }


_LLADA_PARTS: Final = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
_LLADA_ENDS: Final = {"model.embed_tokens": "model.transformer.wte", "model.norm": "model.transformer.ln_f"}
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.*)")


def _llada_name(name: str) -> str:
    module, kind = name.rsplit(".", 1)
    match = _LAYER.fullmatch(module)
    if match is None:
        return f"{_LLADA_ENDS[module]}.{kind}"
    return f"model.transformer.blocks.{match[1]}.{_LLADA_PARTS[match[2]]}.{kind}"


QWEN: Final = Publication(fields=_qwen_fields, tensor_name=str, max_new_tokens=160)
"""Qwen2's names and the fields of Fast-dLLM v2."""
LLADA: Final = Publication(fields=_llada_fields, tensor_name=_llada_name, max_new_tokens=128)
"""LLaDA's names and fields."""
