"""Every architecture gives the logits of an independent reading of the same file: biases, norms, widths, heads."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from brute_force import DenseNetwork
from checkpoints import CPU, MASK, small_config
from traces import LOGIT_ROUNDING
from unmask.engine.forward import Workspace
from unmask.model.checkpoint import open_checkpoint
from unmask.model.geometry import Segment
from unmask.model.synthetic import write_checkpoint
from unmask.model.transformer import Transformer
from unmask.model.weights import load_transformer

NETWORKS: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2", "bd_size": 8},
    "qwen3": {"model_type": "qwen3", "head_dim": 12},
    "qwen3, wide heads": {"model_type": "qwen3", "head_dim": 24, "num_attention_heads": 6},
    "qwen3, narrow heads": {"model_type": "qwen3", "head_dim": 4},
    "qwen3, one key head, tied": {
        "model_type": "qwen3",
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
    "llama": {"model_type": "llama"},
    "llama, tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama, a key head for each": {"model_type": "llama", "num_key_value_heads": 4},
    "sdar": {"model_type": "sdar", "head_dim": 16, "block_size": 8},
    "sdar, tied": {"model_type": "sdar", "head_dim": 16, "tie_word_embeddings": True},
}
BLOCK, TOKENS = 8, 40


def load(folder: Path, dtype: torch.dtype, **changes: Any) -> tuple[Transformer, DenseNetwork]:
    recipe = {
        "kind": "numpy-randomstate-sdar-v1",
        "seed": 3,
        "logit_scale": 6.0,
        "config": small_config(**changes),
    }
    checkpoint = open_checkpoint(write_checkpoint(recipe, folder))
    return load_transformer(checkpoint, CPU, dtype), DenseNetwork(folder)


def logits(transformer: Transformer, tokens: list[int]) -> torch.Tensor:
    segments = [Segment(0, range(start, start + BLOCK), start + BLOCK) for start in range(0, TOKENS, BLOCK)]
    with torch.inference_mode():
        hidden = Workspace(transformer, 1, TOKENS, BLOCK).forward(tokens, segments).hidden_TD
        return transformer.logits(hidden).clone()


@pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)
def test_logits_equal_those_of_the_oracle(tmp_path: Path, changes: dict[str, Any]) -> None:
    draw = random.Random(5)
    tokens = [draw.randrange(MASK) for _ in range(TOKENS)]
    transformer, oracle = load(tmp_path, torch.float32, **changes)
    found, expected = logits(transformer, tokens), oracle.logits(tokens, BLOCK)
    assert (found - expected).abs().max() < LOGIT_ROUNDING / 3
    assert transformer.config.parameters == sum(weight.numel() for weight in oracle.weights.values())


@pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)
def test_logits_in_16_bit_are_near(tmp_path: Path, changes: dict[str, Any]) -> None:
    draw = random.Random(5)
    tokens = [draw.randrange(MASK) for _ in range(TOKENS)]
    transformer, oracle = load(tmp_path, torch.bfloat16, **changes)
    error = logits(transformer, tokens) - oracle.logits(tokens, BLOCK)
    assert error.abs().mean() < 0.02 * oracle.logits(tokens, BLOCK).abs().max()


def test_norms_of_heads_are_seen(tmp_path: Path) -> None:
    """The comparison above would notice norms that are left out, exchanged, or come after the rotation."""
    transformer, oracle = load(tmp_path, torch.float32, model_type="sdar")
    tokens = list(range(TOKENS))
    for layer in transformer.layers:
        assert layer.qk_norms is not None
        for norm in layer.qk_norms:
            norm.copy_(norm.flip(0))
    assert (logits(transformer, tokens) - oracle.logits(tokens, BLOCK)).abs().max() > 100 * LOGIT_ROUNDING
