"""The random checkpoints of LLaDA's and Dream's vectors, drawn without the package: a seed, a config, a hash."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Weights = dict[str, NDArray[np.float32]]
Recipe = dict[str, Any]
LLADA, DREAM = "numpy-randomstate-llada-v1", "numpy-randomstate-dream-v1"
EMBEDDINGS = {LLADA: "model.transformer.wte.weight", DREAM: "model.embed_tokens.weight"}
HEADS = {LLADA: "model.transformer.ff_out.weight", DREAM: "lm_head.weight"}


def shapes(kind: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a network under its published name."""
    if kind == LLADA:
        hidden, inner = config["d_model"], config["mlp_hidden_size"]
        shared = hidden * (config["n_kv_heads"] or config["n_heads"]) // config["n_heads"]
        start, stack, final, layers = "blocks.", "model.transformer.", "ln_f", config["n_layers"]
        norms, biased = ("attn_norm", "ff_norm"), False
        squares = {"q_proj": hidden, "k_proj": shared, "v_proj": shared}
        others = {
            "attn_out": (hidden, hidden),
            "ff_proj": (inner, hidden),
            "up_proj": (inner, hidden),
            "ff_out": (hidden, inner),
        }
    else:
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        shared = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
        start, stack, final, layers = "layers.", "model.", "norm", config["num_hidden_layers"]
        norms, biased = ("input_layernorm", "post_attention_layernorm"), True
        squares = {"self_attn.q_proj": hidden, "self_attn.k_proj": shared, "self_attn.v_proj": shared}
        others = {
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
    table = (config.get("embedding_size") or config["vocab_size"], hidden)
    named: dict[str, tuple[int, ...]] = {EMBEDDINGS[kind]: table, HEADS[kind]: table}
    named[f"{stack}{final}.weight"] = (hidden,)
    for layer in range(layers):
        place = f"{stack}{start}{layer}."
        named |= {f"{place}{name}.weight": (hidden,) for name in norms}
        named |= {f"{place}{name}.weight": (rows, hidden) for name, rows in squares.items()}
        named |= {f"{place}{name}.weight": shape for name, shape in others.items()}
        if biased:
            named |= {f"{place}{name}.bias": (rows,) for name, rows in squares.items()}
    return named


def weights_of(recipe: Recipe) -> Weights:
    """Draw all tensors in the order of their names from one stream, and compare their hash where there is one."""
    kind, config = recipe["kind"], recipe["config"]
    stream = np.random.RandomState(recipe["seed"])
    weights: Weights = {}
    for name, shape in sorted(shapes(kind, config).items()):
        drawn = stream.standard_normal(shape)
        if len(shape) == 1:
            values = 0.1 * drawn if name.endswith(".bias") else 1.0 + 0.1 * drawn
        elif name == EMBEDDINGS[kind]:
            values = drawn * recipe.get("embed_scale", 1.0)
        else:
            scale = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
            if name == HEADS[kind]:
                scale = recipe["logit_scale"]
            values = drawn * scale / shape[1] ** 0.5
            if name == HEADS[kind]:
                values[config["mask_token_id"]] = 0.0
        weights[name] = values.astype(np.float32)
    if recipe.get("sha256"):
        content = b"".join(weights[name].tobytes() for name in sorted(weights))
        assert hashlib.sha256(content).hexdigest() == recipe["sha256"], "other weights than those recorded"
    return weights


def write_canvas_checkpoint(recipe: Recipe, folder: Path) -> Path:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights_of(recipe), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(recipe["config"]))
    return folder
