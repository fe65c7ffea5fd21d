"""Random checkpoints from a recipe of a few numbers, for conformance vectors, tests and benchmarks.

The stream of numpy's legacy RandomState never changes, so a recipe (seed, logit scale, config) names
its weights for good; `sha256` proves that they are the ones meant.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from unmask.errors import UnmaskError
from unmask.model.config import parse_config

KIND = "numpy-randomstate-v1"
Weights = dict[str, NDArray[np.float32]]
Draw = NDArray[np.float64]


def draw_weights(recipe: dict[str, Any]) -> Weights:
    """Draw every tensor in the order of its name from one stream, scaled so that activations stay moderate."""
    if recipe.get("kind", KIND) != KIND:
        raise UnmaskError(f"Checkpoint recipe {recipe['kind']!r} is unknown; this version draws {KIND!r}.")
    config = parse_config(recipe["config"], {}, source="checkpoint recipe")
    stream = np.random.RandomState(recipe["seed"])
    weights: Weights = {}
    for name, shape in sorted(config.tensor_shapes().items()):
        values = stream.standard_normal(shape)
        weights[name] = _scaled(name, values, recipe["logit_scale"], config.mask_token_id).astype(np.float32)
    return weights


def _scaled(name: str, values: Draw, logit_scale: float, mask_token: int | None) -> Draw:
    if "embed_tokens" in name:
        return values
    if values.ndim == 1:
        base, spread = (1.0, 0.1) if "norm" in name else (0.0, 0.1)
        return np.add(base, spread * values)
    scale = 1.5 if "q_proj" in name or "k_proj" in name else logit_scale if "lm_head" in name else 1.0
    scaled: Draw = values * scale / values.shape[1] ** 0.5
    if "lm_head" in name and mask_token is not None:
        scaled[mask_token] = 0.0
    return scaled


def digest(weights: Weights) -> str:
    """Hash the raw values of all tensors in the order of their names."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(weights[name].tobytes())
    return total.hexdigest()


def write_checkpoint(recipe: dict[str, Any], folder: Path) -> Path:
    """Write config.json and model.safetensors of a recipe and check its hash where it has one."""
    weights = draw_weights(recipe)
    expected = recipe.get("sha256")
    if expected and digest(weights) != expected:
        raise UnmaskError("The weights drawn from the recipe differ from those it was recorded with.")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(recipe["config"], indent=1))
    return folder
