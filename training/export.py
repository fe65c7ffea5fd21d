"""Export as a checkpoint folder that any Hugging Face style loader reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from training.encoding import Encoder
from training.network import Network
from training.vocabulary import tokenizer_config


def model_config(network: Network, encoder: Encoder) -> dict[str, Any]:
    """The contents of `config.json`: Qwen2's fields and those of block diffusion."""
    config = network.config
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
        "mask_token_id": encoder.mask,
        "pad_token_id": encoder.pad,
        "eos_token_id": encoder.end,
        "torch_dtype": "float16",
    }


def export(network: Network, encoder: Encoder, target: Path) -> None:
    """Write config, weights in half precision and tokenizer; each file is replaced in one go."""
    target.mkdir(parents=True, exist_ok=True)
    generation = {
        "eos_token_id": [encoder.end, encoder.pad],
        "pad_token_id": encoder.pad,
        "max_new_tokens": 160,
    }
    tensors = {
        name: t.detach().to("cpu", torch.float16).contiguous() for name, t in network.state_dict().items()
    }
    fresh = target / "model.safetensors.new"
    save_file(tensors, fresh, metadata={"format": "pt"})
    fresh.chmod(0o644)
    fresh.replace(target / "model.safetensors")
    _write(target / "config.json", _json(model_config(network, encoder)))
    _write(target / "generation_config.json", _json(generation))
    _write(target / "tokenizer_config.json", _json(tokenizer_config()))
    _write(target / "tokenizer.json", encoder.tokenizer.to_str(pretty=True))


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
