"""Streams a checkpoint's tensors to the device, a piece at a time, in their target dtype and layout.

Pieces are read, not mapped: the pages of a mapped file count as this process's memory, as much again as the
weights. So a model that fits the device also loads on it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint, StoredTensor
from unmask.model.config import ModelConfig
from unmask.model.device import exact_sums, free_bytes, instruction_set
from unmask.model.layouts import choose_layout
from unmask.model.memory import packing_bytes, weight_bytes
from unmask.model.network import Part
from unmask.model.projection import Projection
from unmask.model.rotation import side_by_side
from unmask.model.transformer import Layer, Transformer
from unmask.reading import open_plain

GIB = 1 << 30
BUFFER_BYTES = 32 << 20
"""Bytes read at a time."""
STORED_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
Progress = Callable[[int], None]
"""Called with the bytes of each tensor once it is in place."""


def load_transformer(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, progress: Progress | None = None
) -> Transformer:
    """Load all weights, or refuse beforehand when the device has too little memory."""
    refuse_if_too_large(checkpoint.config, device, dtype)
    exact_sums()
    transformer = empty_transformer(checkpoint.config, device, dtype)
    _read_all(transformer, checkpoint, progress)
    for layer in transformer.layers:
        _lay_side_by_side(layer, transformer.config)
    for projection in transformer.projections():
        projection.settle()
    return transformer


def _read_all(transformer: Transformer, checkpoint: Checkpoint, progress: Progress | None) -> None:
    """Fill all weights; the views it writes to must be gone before weights are packed, or both would be kept."""
    for name, target in _targets(transformer).items():
        stored = checkpoint.tensors[name]
        _read_into(target, stored)
        if progress:
            progress(stored.nbytes)


def refuse_if_too_large(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
    """Compare the weights' size with the free memory."""
    needed, free = weight_bytes(config, dtype.itemsize), free_bytes(device)
    instructions = instruction_set(device, dtype)
    if instructions:
        needed += packing_bytes(config, dtype.itemsize, instructions)
    if free is not None and needed > free:
        raise UnmaskError(
            f"The weights need {needed / GIB:.1f} GiB as {str(dtype).removeprefix('torch.')} but {device} has "
            f"{free / GIB:.1f} GiB free; use a smaller dtype, another device or a smaller checkpoint."
        )


def empty_transformer(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Transformer:
    """Allocate a transformer without values (also on the meta device)."""

    def vector(size: int = config.hidden_size) -> Tensor:
        return torch.empty(size, device=device, dtype=dtype)

    instructions = instruction_set(device, dtype)

    def projection(outputs: int, inputs: int, bias: bool = False) -> Projection:
        layout = choose_layout(inputs, outputs, instructions)
        return Projection.empty(outputs, inputs, bias, device, dtype, layout)

    hidden, ffn = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    embedding = torch.empty(config.vocab_size, hidden, device=device, dtype=dtype)
    layers = tuple(
        Layer(
            attention_norm_D=vector(),
            qkv=projection(queries + 2 * keys, hidden, bias=config.network.qkv_bias),
            qk_norms=(vector(config.head_dim), vector(config.head_dim)) if config.network.qk_norm else None,
            attention_out=projection(hidden, queries),
            mlp_norm_D=vector(),
            gate_up=projection(2 * ffn, hidden),
            down=projection(hidden, ffn),
        )
        for _ in range(config.num_layers)
    )
    if config.tied_head:
        wanted = choose_layout(hidden, config.vocab_size, instructions)
        head = Projection(embedding.t(), None, "packed" if wanted == "packed" else "out_in")
    else:
        head = projection(config.vocab_size, hidden)
    return Transformer(config, embedding, layers, vector(), head)


def _targets(transformer: Transformer) -> dict[str, Tensor]:
    """Map checkpoint names to the views that hold them here."""
    config = transformer.config
    outer: dict[Part, Tensor] = {"embedding": transformer.embedding_VD, "norm": transformer.norm_D}
    if not config.tied_head:
        outer["head"] = transformer.head.weight_OI
    layers = [_layer_views(layer, config) for layer in transformer.layers]
    return {
        name: (outer if layer is None else layers[layer])[part]
        for name, (part, layer) in config.places().items()
    }


def _layer_views(layer: Layer, config: ModelConfig) -> dict[Part, Tensor]:
    """The parts of one layer."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    query, key, value = torch.split(layer.qkv.weight_OI, [queries, keys, keys])
    gate, up = layer.gate_up.weight_OI.chunk(2)
    views: dict[Part, Tensor] = {
        "attention_norm": layer.attention_norm_D,
        "query": query,
        "key": key,
        "value": value,
        "attention_out": layer.attention_out.weight_OI,
        "mlp_norm": layer.mlp_norm_D,
        "gate": gate,
        "up": up,
        "down": layer.down.weight_OI,
    }
    if layer.qkv.bias_O is not None:
        biases = torch.split(layer.qkv.bias_O, [queries, keys, keys])
        views["query_bias"], views["key_bias"], views["value_bias"] = biases
    if layer.qk_norms is not None:
        views["query_norm"], views["key_norm"] = layer.qk_norms
    return views


def _lay_side_by_side(layer: Layer, config: ModelConfig) -> None:
    """Order queries and keys as the rotation wants them."""
    turned = (config.num_heads + config.num_kv_heads) * config.head_dim
    parts = [layer.qkv.weight_OI[:turned]]
    if layer.qkv.bias_O is not None:
        parts.append(layer.qkv.bias_O[:turned])
    for part in (*parts, *(layer.qk_norms or ())):
        part.copy_(side_by_side(part, config.head_dim))


def _read_into(target: Tensor, stored: StoredTensor) -> None:
    """Copy a tensor from its file, as many rows at a time as the buffer holds."""
    dtype = STORED_DTYPES[stored.dtype]
    row_bytes = stored.nbytes // stored.shape[0]
    step = max(1, BUFFER_BYTES // row_bytes)
    try:
        with open_plain(stored.file) as stream:
            stream.seek(stored.offset)
            for start in range(0, stored.shape[0], step):
                rows = target[start : start + step]
                content = bytearray(len(rows) * row_bytes)
                if stream.readinto(content) < len(content):
                    raise OSError("the file ends early")
                rows.copy_(torch.frombuffer(content, dtype=dtype).view(rows.shape))
    except OSError as error:
        raise UnmaskError(f"{stored.file} cannot be read ({error}); download it again.") from None
