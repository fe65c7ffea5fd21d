"""Random checkpoints that decode like models: written once to a folder, then taken from there.

Knows the shapes that are measured and how a tied head must be scaled. Without care it would repeat the
token it was fed, since the stream still holds that token's embedding, and every confidence would be 1:
so embeddings are small beside what the layers add, and the final norm brings the logits to a spread at
which some confidences pass a threshold of 0.9 and most do not.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

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
}


def random_checkpoint(shape: str, cache: Path = DEFAULT_CACHE) -> Path:
    """Return the folder of a shape's checkpoint, written now if it is not there."""
    folder = cache / f"{shape}-seed{SEED}-spread{LOGIT_SPREAD:g}"
    if (folder / "config.json").is_file():
        return folder
    config = COMMON | SHAPES[shape]
    weights = draw_weights({"seed": SEED, "logit_scale": 1.0, "config": config})
    weights["model.embed_tokens.weight"] *= EMBEDDING_SPREAD
    weights["model.norm.weight"] *= LOGIT_SPREAD / (EMBEDDING_SPREAD * config["hidden_size"] ** 0.5)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder
