"""Random checkpoints from a recipe of a few numbers, for conformance vectors, tests and benchmarks.

The stream of numpy's legacy RandomState never changes, so a recipe (seed, logit scale, config) names
its weights for good; `sha256` proves that they are the ones meant.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig, parse_config
from unmask.model.network import Part

Weights = dict[str, NDArray[np.float32]]
Draw = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scales:
    """How a kind of recipe scales what it draws, so that activations stay moderate."""

    heads: float
    """Queries and keys, times one over the root of their inputs."""
    head_norms: tuple[float, float]
    """The middle and the spread of the norms of heads."""
    tied: bool
    """Whether an embedding that is the head too is scaled as a head; then a mask token's row is a tenth of that."""


KIND = "numpy-randomstate-v1"
KINDS = {
    KIND: Scales(heads=1.5, head_norms=(1.0, 0.1), tied=False),
    "numpy-randomstate-sdar-v1": Scales(heads=1.0, head_norms=(1.6, 0.2), tied=True),
    "numpy-randomstate-llada-v1": Scales(heads=1.5, head_norms=(1.0, 0.1), tied=False),
    "numpy-randomstate-dream-v1": Scales(heads=1.5, head_norms=(1.0, 0.1), tied=False),
}


def draw_weights(recipe: dict[str, Any]) -> Weights:
    """Draw every tensor in the order of its name from one stream."""
    scales = KINDS.get(recipe.get("kind", KIND))
    if scales is None:
        raise UnmaskError(
            f"Checkpoint recipe {recipe['kind']!r} is unknown; this version draws {', '.join(KINDS)}."
        )
    config = parse_config(recipe["config"], {}, source="checkpoint recipe")
    stream = np.random.RandomState(recipe["seed"])
    places, shapes = config.places(), config.tensor_shapes()
    weights: Weights = {}
    for name in sorted(shapes):
        values = stream.standard_normal(shapes[name])
        scaled = _scaled(places[name][0], values, scales, recipe["logit_scale"], config)
        if places[name][0] == "embedding":
            scaled = scaled * recipe.get("embed_scale", 1.0)
        weights[name] = scaled.astype(np.float32)
    return weights


def _scaled(part: Part, values: Draw, scales: Scales, logit_scale: float, config: ModelConfig) -> Draw:
    if part in ("query_norm", "key_norm"):
        middle, spread = scales.head_norms
        return np.add(middle, spread * values)
    if values.ndim == 1:
        return np.add(1.0 if "norm" in part else 0.0, 0.1 * values)
    as_head = part == "head" or (part == "embedding" and config.tied_head and scales.tied)
    if part == "embedding" and not as_head:
        return values
    scale = logit_scale if as_head else scales.heads if part in ("query", "key") else 1.0
    scaled: Draw = values * scale / values.shape[1] ** 0.5
    if as_head and config.mask_token_id is not None:
        scaled[config.mask_token_id] = 0.1 * scaled[config.mask_token_id] if config.tied_head else 0.0
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
