"""Export as a checkpoint folder that any Hugging Face style loader reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from training.encoding import Encoder
from training.network import Network
from training.publication import QWEN, Publication
from training.vocabulary import tokenizer_config


def model_config(network: Network, encoder: Encoder, publication: Publication) -> dict[str, Any]:
    """The contents of `config.json`."""
    return publication.fields(network.config) | {
        "mask_token_id": encoder.mask,
        "pad_token_id": encoder.pad,
        "eos_token_id": encoder.end,
        "torch_dtype": "float16",
    }


def export(network: Network, encoder: Encoder, target: Path, publication: Publication = QWEN) -> None:
    """Write config, weights in half precision and tokenizer; each file is replaced in one go."""
    target.mkdir(parents=True, exist_ok=True)
    generation = {
        "eos_token_id": [encoder.end, encoder.pad],
        "pad_token_id": encoder.pad,
        "max_new_tokens": publication.max_new_tokens,
    }
    tensors = {
        publication.tensor_name(name): tensor.detach().to("cpu", torch.float16).contiguous()
        for name, tensor in network.state_dict().items()
    }
    fresh = target / "model.safetensors.new"
    save_file(tensors, fresh, metadata={"format": "pt"})
    fresh.chmod(0o644)
    fresh.replace(target / "model.safetensors")
    _write(target / "config.json", _json(model_config(network, encoder, publication)))
    _write(target / "generation_config.json", _json(generation))
    _write(target / "tokenizer_config.json", _json(tokenizer_config()))
    _write(target / "tokenizer.json", encoder.tokenizer.to_str(pretty=True))


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
