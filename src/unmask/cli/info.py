"""`unmask info`: prints what model/info.py knows of a checkpoint. Needs no torch."""

from typing import Any

import click

from unmask.errors import UnmaskError
from unmask.model.hub import find_checkpoint, in_cache, is_hub_id
from unmask.model.info import describe, describe_published
from unmask.reading import printable, printable_json
from unmask.spec.published import published

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
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Requests together."
)
@click.option("--length", type=click.IntRange(min=1), help="Prompt and answer. [2048, or the context]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def info(ctx: click.Context, path: str, batch_size: int, length: int | None, as_json: bool) -> None:
    """Show a checkpoint's architecture, the memory it needs and whether it can be run.

    Only headers are read. The exit code is 0 if it can be run and 2 if not. Nothing is downloaded for a published
    checkpoint that Unmask knows; of another hub id the small files are fetched. Weights are looked at where they are in
    the download cache.

    \b
    Examples:
      unmask info path/to/checkpoint
      unmask info path/to/checkpoint --batch-size 32 --length 4096
      unmask info path/to/checkpoint --json | jq .usable
      unmask info Efficient-Large-Model/Fast_dLLM_v2_7B
    """
    try:
        known = published(path) if is_hub_id(path) and not in_cache(path) else None
        if known:
            facts = describe_published(known, batch_size, length)
        else:
            facts = describe(find_checkpoint(path, weights=False), batch_size, length, is_hub_id(path))
    except UnmaskError as error:
        if not as_json:
            raise
        facts = {"path": path, "usable": False, "reason": str(error)}
    click.echo(printable_json(facts, indent=1) if as_json else printable(_as_text(facts)))
    ctx.exit(0 if facts["usable"] else 2)


def _as_text(facts: dict[str, Any]) -> str:
    """Aligned lines, `name: value`."""
    memory = facts["memory"]
    lines = {
        "path": facts["path"],
        "architecture": facts["architecture"],
        "family": facts["family"],
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
    if "known" in facts:
        lines["known"] = f"not from its files but from facts that ship with Unmask. {facts['known']}"
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
