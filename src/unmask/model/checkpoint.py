"""A checkpoint folder as it lies on disk: configuration, tensor headers, and whether they fit each other.

Reads headers only, so that a broken or foreign checkpoint is refused before anything is loaded, and
needs no torch. It builds the tokenizer once, for whoever needs it first. It does not know about devices.
"""

import os
import struct
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig, read_config, read_json
from unmask.model.network import LAYER
from unmask.model.token_files import stop_tokens_of, tokenizer_file
from unmask.reading import is_inside, open_plain

if TYPE_CHECKING:
    from unmask.model.tokenizer import Tokenizer

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MOST_HEADER = 100_000_000
"""Bytes of a header, as the format itself allows them."""
ROTATION_TABLE = "rotary_emb.inv_freq"
"""A table that older files hold beside the weights; it follows from the config."""
ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies and what it is."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Where its first byte lies in the file."""
    stored_bytes: int
    """Bytes that the header gives it."""

    @property
    def nbytes(self) -> int:
        """Bytes that its shape needs."""
        return prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose tensors were found complete and of the right shape."""

    folder: Path
    config: ModelConfig
    tensors: dict[str, StoredTensor]

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can be read and written; token ids always can."""
        return tokenizer_file(self.folder) is not None

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer, built when it is first needed and then shared by all who hold this checkpoint."""
        from unmask.model.tokenizer import Tokenizer

        return Tokenizer.from_folder(self.folder)


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read configuration and headers and check every tensor the architecture needs."""
    if not folder.exists():
        raise UnmaskError(
            f"{folder}: no such folder; give a checkpoint folder or a hub id such as 'org/name'."
        )
    if not folder.is_dir():
        raise UnmaskError(f"{folder} is a file; give the folder that holds config.json and the weights.")
    config = read_config(folder)
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files(folder):
        if not file.is_file():
            raise UnmaskError(
                f"{folder} is not a complete checkpoint: {file.name} is missing; download it again."
            )
        tensors |= _read_header(file)
    _check(config, tensors, folder)
    config = msgspec.structs.replace(config, stop_tokens=stop_tokens_of(config, folder))
    return Checkpoint(folder, config, tensors)


def weight_files(folder: Path) -> list[Path]:
    """The files that should hold the weights, whether they are there or not."""
    index = folder / INDEX_FILE
    if index.is_file():
        weight_map = read_json(index, missing="").get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise UnmaskError(f"{index} has no weight_map; download the checkpoint again.")
        if not all(isinstance(name, str) and is_inside(name) for name in weight_map.values()):
            raise UnmaskError(
                f"{index}: weight_map must name a file of this folder for each tensor; download it again."
            )
        return [folder / name for name in sorted(set(weight_map.values()))]
    return [folder / SINGLE_FILE]


def _read_header(file: Path) -> dict[str, StoredTensor]:
    broken = UnmaskError(f"{file} is cut short or not a safetensors file; download it again.")
    with open_plain(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        prefix = stream.read(8)
        if len(prefix) < 8:
            raise broken
        (length,) = struct.unpack("<Q", prefix)
        if length > min(size - 8, MOST_HEADER):
            raise broken
        try:
            header = _decode_header(stream.read(length))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise broken from None
    end = max((entry.data_offsets[1] for entry in header.values()), default=0)
    if size < 8 + length + end or any(min(entry.data_offsets) < 0 for entry in header.values()):
        raise broken
    data = 8 + length
    return {
        name: StoredTensor(file, entry.dtype, entry.shape, data + first, last - first)
        for name, entry in header.items()
        for first, last in (entry.data_offsets,)
    }


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _decode_header(content: bytes) -> dict[str, _Entry]:
    entries = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    entries.pop("__metadata__", None)
    return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in entries.items()}


def _check(config: ModelConfig, tensors: dict[str, StoredTensor], folder: Path) -> None:
    _refuse_unknown_parts(config, tensors, folder)
    for name, shape in config.tensor_shapes().items():
        stored = tensors.get(name)
        if stored is None:
            raise UnmaskError(f"{folder}: tensor {name} is missing; download the checkpoint again.")
        if stored.shape != shape:
            raise UnmaskError(
                f"{folder}: tensor {name} has shape {list(stored.shape)} but config.json asks for {list(shape)}."
            )
        if stored.dtype not in ELEMENT_BYTES:
            raise UnmaskError(
                f"{folder}: tensor {name} is stored as {stored.dtype}; only floating-point weights can be loaded."
            )
        if stored.stored_bytes != stored.nbytes:
            raise UnmaskError(
                f"{stored.file} cannot be read (tensor {name} has {stored.stored_bytes} bytes and should have "
                f"{stored.nbytes}); download it again."
            )


def _refuse_unknown_parts(config: ModelConfig, tensors: dict[str, StoredTensor], folder: Path) -> None:
    """Stop at tensors of a layer that the network has no place for: it would compute something else without them."""
    known, layers = config.tensor_shapes(), config.network.names["attention_norm"].partition(LAYER)[0]
    for name in sorted(tensors.keys() - known.keys()):
        if name.startswith(layers) and not name.endswith(ROTATION_TABLE):
            raise UnmaskError(
                f"{folder}: tensor {name} is no part of a {config.network.title} network, which config.json names; "
                "its model_type does not fit the weights, so download the checkpoint again."
            )
