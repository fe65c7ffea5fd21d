"""Making a trained network deeper: each layer becomes two that do half of its work each."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

import torch
from torch import Tensor

from training.network import Network

_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.*)")
_BRANCH_ENDS: Final = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def grow(network: Network, layers: int) -> Network:
    """A deeper network of nearly the same function: what a layer adds is spread over its copies."""
    copies, remainder = divmod(layers, network.config.layers)
    if remainder or copies < 1:
        raise ValueError(f"{layers} layers are no multiple of {network.config.layers}")
    if copies == 1:
        return network
    grown: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        match = _LAYER.fullmatch(name)
        if match is None:
            grown[name] = tensor.clone()
            continue
        layer, rest = int(match[1]), match[2]
        for copy in range(copies):
            scale = 1 / copies if rest in _BRANCH_ENDS else 1.0
            grown[f"model.layers.{layer * copies + copy}.{rest}"] = tensor * scale
    deeper = Network(dataclasses.replace(network.config, layers=layers))
    deeper.load_state_dict(grown)
    return deeper.to(next(iter(grown.values())).device, torch.float32)
