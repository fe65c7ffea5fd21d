"""What a checkpoint is, what it needs, and whether it can be run: facts for people and programs, without torch."""

from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint, weight_files
from unmask.model.config import ModelConfig, read_config
from unmask.model.hub import parse_published
from unmask.model.memory import (
    PROCESS_BYTES,
    buffer_bytes,
    guessed_instructions,
    kv_bytes,
    packing_bytes,
    weight_bytes,
)
from unmask.model.token_files import mask_token_of, tokenizer_file
from unmask.model.tokenizer import Tokenizer
from unmask.spec.published import PublishedCheckpoint

DEFAULT_LENGTH = 2048
ELEMENT_BYTES = {"float32": 4, "16 bit": 2}


def describe(folder: Path, batch_size: int, length: int | None, from_hub: bool = False) -> dict[str, Any]:
    """Everything that config, headers and tokenizer files say; refuses only what has no readable config.

    A folder of the hub's cache may lack weights: they are fetched when the checkpoint is first run.
    """
    if not folder.is_dir():
        open_checkpoint(folder)
    config = read_config(folder)
    length = length or min(DEFAULT_LENGTH, config.max_positions)
    facts = _architecture(str(folder), config)
    reason = None
    try:
        present = all(file.is_file() for file in weight_files(folder))
        facts["weights"] = "present" if present else "not downloaded" if from_hub else "missing"
        if facts["weights"] != "not downloaded":
            tensors = open_checkpoint(folder).tensors
            facts["stored_dtype"] = ", ".join(
                sorted({tensors[name].dtype for name in config.tensor_shapes()})
            )
        facts |= _text_side(folder)
        facts["mask_token"] = mask_token_of(config, folder)
        _check_lengths(config, length)
    except UnmaskError as error:
        reason = str(error)
    facts["memory"] = _memory(config, batch_size, length)
    return {**facts, "usable": reason is None, "reason": reason}


def describe_published(known: PublishedCheckpoint, batch_size: int, length: int | None) -> dict[str, Any]:
    """The same of a published checkpoint that is not here, by the facts that ship with the package."""
    (name,) = known.names
    try:
        config = parse_published(known)
    except UnmaskError as error:
        raise UnmaskError(f"{error} It has {known.parameters:,} parameters.") from None
    length = length or min(DEFAULT_LENGTH, config.max_positions)
    reason = None
    try:
        _check_lengths(config, length)
    except UnmaskError as error:
        reason = str(error)
    facts = _architecture(name, config) | {"weights": "not downloaded", "known": known.known}
    return {
        **facts,
        "memory": _memory(config, batch_size, length),
        "usable": reason is None,
        "reason": reason,
    }


def _check_lengths(config: ModelConfig, length: int) -> None:
    if config.block_size is None and not config.family.canvas:
        raise UnmaskError(
            f"config.json names no block size ({config.family.block_field}); give --block-size when you generate."
        )
    if length > config.max_positions:
        raise UnmaskError(f"length {length} exceeds the context of {config.max_positions} tokens.")


def _architecture(path: str, config: ModelConfig) -> dict[str, Any]:
    return {
        "path": path,
        "architecture": config.network.title,
        "family": config.family.name,
        "layers": config.num_layers,
        "heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "vocabulary": config.vocab_size,
        "tied_head": config.tied_head,
        "parameters": config.parameters,
        "context": config.max_positions,
        "block_size": config.block_size,
        "mask_token": config.mask_token_id,
        "stop_tokens": list(config.stop_tokens),
        "stored_dtype": config.stored_dtype,
    }


def _text_side(folder: Path) -> dict[str, Any]:
    if tokenizer_file(folder) is None:
        return {"tokenizer": False, "chat_template": False}
    return {"tokenizer": True, "chat_template": Tokenizer.from_folder(folder).has_chat_template}


def _memory(config: ModelConfig, batch_size: int, length: int) -> dict[str, Any]:
    """Bytes by what they are for; a sequence's buffer ends with a whole block.

    For float32 they sum up to the peak of a process on a CPU, for 16 bit to what a decoding takes of a device.
    """
    block = config.block_size or 1
    whole_blocks = -(-length // block) * block

    def parts(size: int) -> dict[str, int]:
        return {
            "weights": weight_bytes(config, size),
            "kv": kv_bytes(config, batch_size, whole_blocks, size),
            "buffers": buffer_bytes(config, batch_size, whole_blocks, size),
        }

    wide, narrow = (parts(size) for size in ELEMENT_BYTES.values())
    packing = packing_bytes(config, ELEMENT_BYTES["float32"], guessed_instructions())
    if not config.tied_head:  # it is over before a decoding takes its buffers
        packing = max(0, packing - wide["kv"] - wide["buffers"])
    return {
        "batch_size": batch_size,
        "length": length,
        "bytes": {"float32": wide | {"packing": packing, "process": PROCESS_BYTES}, "16 bit": narrow},
    }
