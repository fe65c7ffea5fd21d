"""Checkpoints for benchmarks: written once to a folder, then taken from there.

Knows the shapes that are measured and how a tied head must be scaled for random weights that decode like
a model. Without care it would repeat the token it was fed, since the stream still holds that token's
embedding, and every confidence would be 1: so embeddings are small beside what the layers add, and the
final norm brings the logits to a spread at which some confidences pass a threshold of 0.9 and most do not.

The weights are held once while they are drawn and written (6.2 GB for 1.5b).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from unmask.model.config import parse_config
from unmask.model.hub import find_checkpoint
from unmask.model.synthetic import draw_weights

DEFAULT_CACHE = Path.home() / ".cache" / "unmask-bench"
SEED = 1
EMBEDDING_SPREAD = 0.02
LOGIT_SPREAD = 14.0
"""Standard deviation of a row's logits; 14 gives about two tokens a denoising step at both shapes."""
COMMON = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "bd_size": 32,
    "torch_dtype": "float32",
}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 320,
        "vocab_size": 512,
        "mask_token_id": 511,
    },
    "0.5b": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "mask_token_id": 151665,
    },
    "1.5b": {
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151936,
        "mask_token_id": 151665,
    },
}
SHAPES["wide"] = SHAPES["0.5b"] | {"num_hidden_layers": 3, "vocab_size": 18992, "mask_token_id": 18991}
"""The width of 0.5b with an eighth of its layers and of its vocabulary, so that the head keeps its share."""

AUTOREGRESSIVE: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "rope_theta": 100_000.0,
    },
    "qwen2.5-0.5b": SHAPES["0.5b"] | {"bd_size": None, "mask_token_id": None},
}
"""Shapes of models that predict one token at a time; a null stands for a field that is not there."""
LLADA_WORDS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "vocab_size": "embedding_size",
    "max_position_embeddings": "max_sequence_length",
    "tie_word_embeddings": "weight_tying",
}


def _dream(shape: str) -> dict[str, Any]:
    """A shape as Dream has it: the same fields, no block size."""
    named = {"architectures": ["DreamModel"], "model_type": "Dream", "bd_size": None, "pad_token_id": 0}
    return SHAPES[shape] | named


def _llada(shape: str) -> dict[str, Any]:
    """A shape in LLaDA's words."""
    config = {LLADA_WORDS.get(name, name): value for name, value in (COMMON | SHAPES[shape]).items()}
    left_out = dict.fromkeys([*LLADA_WORDS, "bd_size", "hidden_act"])
    named = {"architectures": ["LLaDAModelLM"], "model_type": "llada", "activation_type": "silu"}
    return config | left_out | named | {"vocab_size": SHAPES[shape]["vocab_size"], "pad_token_id": 0}


CANVASES = {f"llada-{shape}": _llada(shape) for shape in SHAPES} | {
    f"dream-{shape}": _dream(shape) for shape in SHAPES
}
"""The same shapes with whole-canvas attention."""


def config_of(shape: str) -> dict[str, Any]:
    """The config of a shape, or of the embedded model, before any weights are there."""
    if shape == "embedded":
        config: dict[str, Any] = json.loads((find_checkpoint(shape) / "config.json").read_text())
        return config
    config = COMMON | (SHAPES | AUTOREGRESSIVE | CANVASES)[shape]
    return {name: value for name, value in config.items() if value is not None}


def random_checkpoint(shape: str, cache: Path = DEFAULT_CACHE) -> Path:
    """Return the folder of a shape's checkpoint, written now if it is not there."""
    folder = cache / f"{shape}-seed{SEED}-spread{LOGIT_SPREAD:g}"
    if (folder / "config.json").is_file():
        return folder
    config = config_of(shape)
    weights = draw_weights({"seed": SEED, "logit_scale": 1.0, "config": config})
    known = parse_config(config, {}, source=shape)
    weights[known.network.names["embedding"]] *= EMBEDDING_SPREAD
    weights[known.network.names["norm"]] *= LOGIT_SPREAD / (EMBEDDING_SPREAD * known.hidden_size**0.5)
    return _write(folder, weights, config)


def embedded_in_fp32(cache: Path = DEFAULT_CACHE) -> Path:
    """Return the folder of an fp32 copy of the embedded model, for networks that compute in the stored dtype."""
    stored = find_checkpoint("embedded") / "model.safetensors"
    folder = cache / f"embedded-{hashlib.sha256(stored.read_bytes()).hexdigest()[:12]}-float32"
    if (folder / "config.json").is_file():
        return folder
    weights = {name: values.astype(np.float32) for name, values in load_file(stored).items()}
    return _write(folder, weights, config_of("embedded"))


def _write(folder: Path, weights: dict[str, Any], config: dict[str, Any]) -> Path:
    """Write the config last: a folder that holds one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "float32"}, indent=1))
    return folder
