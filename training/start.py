"""The file that training starts from: a trained network with the tokens of its vocabulary.

It is an exported checkpoint, or made from one by merging its layers in pairs (`python -m training start`). A recipe
names such a file; tokens that the file does not know get embeddings drawn at random, as large as those it knows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from training.network import Network
from unmask.errors import UnmaskError

EMBEDDING: Final = "model.embed_tokens.weight"
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.*)")
_BRANCH_ENDS: Final = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary in the order of its ids."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def merge_pairs(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Half as many layers: each is the mean of two neighbours, and adds what the two added together."""
    merged: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = _LAYER.fullmatch(name)
        if match is None:
            merged[name] = tensor
        elif int(match[1]) % 2 == 0:
            layer, rest = int(match[1]), match[2]
            both = tensor.float() + tensors[f"model.layers.{layer + 1}.{rest}"].float()
            merged[f"model.layers.{layer // 2}.{rest}"] = both if rest in _BRANCH_ENDS else both / 2
    return merged


def write_start(checkpoint: Path, target: Path) -> None:
    """Merge an exported checkpoint in pairs of layers and write it, in half precision, with its vocabulary."""
    merged = merge_pairs(load_file(checkpoint / "model.safetensors"))
    tokens = tokens_by_id(Tokenizer.from_file(str(checkpoint / "tokenizer.json")))
    halves = {name: tensor.half().contiguous() for name, tensor in merged.items()}
    save_file(halves, target, metadata={"tokens": json.dumps(tokens)})


def _tokens_of(path: Path, metadata: dict[str, str]) -> list[str]:
    """The vocabulary of a file: written in it, or in the tokenizer beside it."""
    if "tokens" in metadata:
        return list(json.loads(metadata["tokens"]))
    return tokens_by_id(Tokenizer.from_file(str(path.with_name("tokenizer.json"))))


def load_start(network: Network, tokenizer: Tokenizer, path: Path, seed: int) -> None:
    """Put the weights of a start file into a network, embeddings by token."""
    if not path.is_file():
        raise UnmaskError(f"The file that training starts from is missing: {path}.")
    with safe_open(path, "pt") as file:
        known = {token: row for row, token in enumerate(_tokens_of(path, file.metadata()))}
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    old = tensors[EMBEDDING]
    generator = torch.Generator().manual_seed(seed)
    rows = [
        old[known[token]] if token in known else torch.randn(old.shape[1], generator=generator) * old.std()
        for token in tokens_by_id(tokenizer)
    ]
    network.load_state_dict({**tensors, EMBEDDING: torch.stack(rows)})
