"""Small random checkpoints for tests: recipes, folders, and loaded models with their oracle beside them."""

import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from brute_force import DenseNetwork
from canvas_oracle import PARTS as CANVAS_PARTS
from canvas_oracle import CanvasNetwork
from unmask.engine.engine import Engine
from unmask.model.checkpoint import open_checkpoint
from unmask.model.synthetic import write_checkpoint
from unmask.model.token_files import mask_token_of
from unmask.model.transformer import Transformer
from unmask.model.weights import load_transformer

GOLDEN = Path(__file__).parent / "golden"
VOCABULARY = 64
MASK = VOCABULARY - 1
CPU = torch.device("cpu")
DEVICE = torch.device(os.environ.get("UNMASK_TEST_DEVICE", "cpu"))
"""Where engines of tests compute; oracles stay on the CPU."""
AnyEngine = TypeVar("AnyEngine", bound=Engine)


class Model(NamedTuple):
    """A loaded random model and an independent reading of the same file."""

    engine: Engine
    oracle: Any
    """A DenseNetwork or, of whole canvases, a CanvasNetwork."""


def small_config(**changes: Any) -> dict[str, Any]:
    """A config.json as the golden vectors have it, at a quarter of the size."""
    return {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "bd_size": 32,
        "mask_token_id": MASK,
        "eos_token_id": MASK - 2,
        "torch_dtype": "float32",
    } | changes


OF_FAMILY: dict[str, dict[str, Any]] = {
    "fast_dllm_v2": {},
    "sdar": {"model_type": "sdar", "block_size": 4, "head_dim": 8},
    "autoregressive": {"model_type": "qwen3", "mask_token_id": None, "head_dim": 8},
    "llada": {
        "model_type": "llada",
        "d_model": 32,
        "mlp_hidden_size": 48,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "embedding_size": VOCABULARY,
        "max_sequence_length": 4096,
    },
    "dream": {"model_type": "Dream"},
}
"""What to change in a small config to have a model of another family."""


def small_recipe(seed: int = 0, logit_scale: float = 6.0, **changes: Any) -> dict[str, Any]:
    """A recipe of random weights; a larger `logit_scale` makes near-ties rarer."""
    return {"seed": seed, "logit_scale": logit_scale, "config": small_config(**changes)}


def write_small(folder: Path, seed: int = 0, logit_scale: float = 6.0, **changes: Any) -> Path:
    """Write a small checkpoint and return its folder."""
    return write_checkpoint(small_recipe(seed, logit_scale, **changes), folder)


@lru_cache(maxsize=64)
def small_model(seed: int = 0, logit_scale: float = 6.0, **changes: Any) -> Model:
    """A small model, loaded once in a test session."""
    return load_recipe(small_recipe(seed, logit_scale, **changes))


def load_recipe(recipe: dict[str, Any], dtype: torch.dtype = torch.float32) -> Model:
    """Load a recipe through a folder that is gone afterwards."""
    with TemporaryDirectory() as name:
        folder = write_checkpoint(recipe, Path(name))
        canvas = recipe["config"]["model_type"] in CANVAS_PARTS
        return Model(load_engine(folder, dtype), CanvasNetwork(folder) if canvas else DenseNetwork(folder))


def load_engine(folder: Path, dtype: torch.dtype = torch.float32) -> Engine:
    """Load a folder on the device of the tests; the engine has no tokenizer."""
    checkpoint = open_checkpoint(folder)
    mask_token = mask_token_of(checkpoint.config, folder)
    return Engine(load_transformer(checkpoint, DEVICE, dtype), mask_token)


def engine_of(kind: type[AnyEngine], engine: Engine, transformer: Transformer | None = None) -> AnyEngine:
    """The same weights behind a subclass of Engine that a test defines."""
    return kind(transformer or engine.transformer, engine.mask_token)


def read_golden(name: str) -> dict[str, Any]:
    """A golden vector."""
    vector: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return vector


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """Rewrite the single weight file of a folder after `change` has edited its tensors."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, file)
    return folder


def change_config(folder: Path, **changes: Any) -> Path:
    """Rewrite fields of a folder's config.json; None removes a field."""
    file = folder / "config.json"
    raw = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in raw.items() if value is not None}))
    return folder


def golden_settings(vector: dict[str, Any]) -> dict[str, Any]:
    """Decode settings of a vector of Fast-dLLM v2, which says of the cache whether there is one."""
    settings = dict(vector["decode"])
    cache = "dual" if settings.pop("block_cache") else "none"
    return settings | {"cache": cache}
