"""`unmask info`: what a checkpoint is, what it needs, and whether it can be run. Needs no torch."""

import json
from pathlib import Path
from typing import Any

import click

from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint, weight_files
from unmask.model.config import ModelConfig, read_config
from unmask.model.hub import find_checkpoint, is_hub_id
from unmask.model.memory import (
    PROCESS_BYTES,
    buffer_bytes,
    guessed_instructions,
    kv_bytes,
    packing_bytes,
    weight_bytes,
)
from unmask.model.token_files import mask_token_of
from unmask.model.tokenizer import Tokenizer

DEFAULT_LENGTH = 2048
ELEMENT_BYTES = {"float32": 4, "16 bit": 2}
GIB = 1 << 30
PARTS = {
    "weights": "weights",
    "kv": "keys and values",
    "buffers": "buffers",
    "packing": "packed head",
    "process": "Python and torch",
}


@click.command()
@click.argument("path", metavar="PATH_OR_HUB_ID")
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Rows together.")
@click.option("--length", type=click.IntRange(min=1), help="Prompt and answer. [2048, or the context]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def info(ctx: click.Context, path: str, batch_size: int, length: int | None, as_json: bool) -> None:
    """Show a checkpoint's architecture, the memory it needs and whether it can be run.

    Only headers are read. The exit code is 0 if it can be run and 2 if not. Of a hub id only the small files
    are fetched: its weights are looked at where they are in the download cache.

    \b
    Examples:
      unmask info path/to/checkpoint
      unmask info path/to/checkpoint --batch-size 32 --length 4096
      unmask info path/to/checkpoint --json | jq .usable
    """
    try:
        facts = describe(find_checkpoint(path, weights=False), batch_size, length, is_hub_id(path))
    except UnmaskError as error:
        if not as_json:
            raise
        facts = {"path": path, "usable": False, "reason": str(error)}
    click.echo(json.dumps(facts, ensure_ascii=False, indent=1) if as_json else _as_text(facts))
    ctx.exit(0 if facts["usable"] else 2)


def describe(folder: Path, batch_size: int, length: int | None, from_hub: bool = False) -> dict[str, Any]:
    """Everything that config, headers and tokenizer files say; refuses only what has no readable config.

    A folder of the hub's cache may lack weights: they are fetched when the checkpoint is first run.
    """
    if not folder.is_dir():
        open_checkpoint(folder)
    config = read_config(folder)
    length = length or min(DEFAULT_LENGTH, config.max_positions)
    facts = _architecture(folder, config)
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
        if config.block_size is None:
            raise UnmaskError(
                "config.json names no block size (bd_size); give --block-size when you generate."
            )
        if length > config.max_positions:
            raise UnmaskError(f"length {length} exceeds the context of {config.max_positions} tokens.")
    except UnmaskError as error:
        reason = str(error)
    facts["memory"] = _memory(config, batch_size, length)
    return {**facts, "usable": reason is None, "reason": reason}


def _architecture(folder: Path, config: ModelConfig) -> dict[str, Any]:
    return {
        "path": str(folder),
        "architecture": "Qwen2 block diffusion" if config.block_size else "Qwen2",
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
    if not (folder / "tokenizer.json").is_file():
        return {"tokenizer": False, "chat_template": False}
    return {"tokenizer": True, "chat_template": Tokenizer.from_folder(folder).has_chat_template}


def _memory(config: ModelConfig, batch_size: int, length: int) -> dict[str, Any]:
    """Bytes by what they are for; a row's buffer ends with a whole block.

    For float32 they sum up to the peak of a process on a CPU, for 16 bit to what a decoding takes of a device.
    """
    block = config.block_size or 1
    columns = -(-length // block) * block

    def parts(size: int) -> dict[str, int]:
        return {
            "weights": weight_bytes(config, size),
            "kv": kv_bytes(config, batch_size, columns, size),
            "buffers": buffer_bytes(config, batch_size, columns, size),
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


def _as_text(facts: dict[str, Any]) -> str:
    """Aligned lines, `name: value`."""
    memory = facts["memory"]
    lines = {
        "path": facts["path"],
        "architecture": facts["architecture"],
        "layers": facts["layers"],
        "heads": f"{facts['heads']} ({facts['kv_heads']} for keys and values) of {facts['head_dim']}",
        "hidden size": f"{facts['hidden_size']} (MLP {facts['intermediate_size']})",
        "vocabulary": f"{facts['vocabulary']} ({'tied' if facts['tied_head'] else 'untied'} head)",
        "parameters": f"{facts['parameters']:,}",
        "context": f"{facts['context']} tokens",
        "block size": facts["block_size"] or "not named",
        "mask token": "not named" if facts["mask_token"] is None else facts["mask_token"],
        "stop tokens": ", ".join(map(str, facts["stop_tokens"])) or "none",
        "stored dtype": facts["stored_dtype"] or "not named",
    }
    if facts.get("weights") == "not downloaded":
        lines["weights"] = "not downloaded, so unchecked"
    if "tokenizer" in facts:
        lines["tokenizer"] = "present" if facts["tokenizer"] else "missing: prompts must be token ids"
        lines["chat template"] = "present" if facts["chat_template"] else "missing"
    for name, sizes in memory["bytes"].items():
        parts = " + ".join(f"{_size(size)} {PARTS[part]}" for part, size in sizes.items() if size)
        lines[f"memory, {name}{' on a CPU' if 'process' in sizes else ''}"] = (
            f"{_size(sum(sizes.values()))} = {parts} (batch {memory['batch_size']}, length {memory['length']})"
        )
    lines["usable"] = "yes" if facts["usable"] else f"no, because {facts['reason']}"
    width = max(map(len, lines))
    return "\n".join(f"{name:>{width}}: {value}" for name, value in lines.items())


def _size(count: int) -> str:
    if count >= GIB:
        return f"{count / GIB:.2f} GiB"
    return f"{count / (1 << 20):.1f} MiB"
