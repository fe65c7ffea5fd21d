"""`unmask ceiling`: what policies can save at the very most, before anything runs. Needs no torch."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.box import SIMPLE
from rich.table import Table

from unmask.analysis.ceilings import script_of
from unmask.cli.options import cache_option
from unmask.cli.screen import console
from unmask.cost import DEVICES, Device
from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig
from unmask.model.hub import find_config
from unmask.policies.calibration import recorded_steps
from unmask.policies.ceiling import Ceiling, ceiling_of, equal_by_construction
from unmask.policies.text import read_policy
from unmask.spec import DecodeSpec
from unmask.spec.family import CacheName
from unmask.spec.policy import FullSpec

PLAIN_WIDTH = 160
"""Characters of a line where no terminal says otherwise."""
MOST_TOKENS = 1 << 16
"""A decoding is rehearsed step by step; this many take some seconds."""


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--model",
    "-m",
    required=True,
    metavar="PATH_OR_HUB_ID",
    help="Only config.json is read; published ones are known.",
)
@click.option(
    "--device", type=click.Choice(sorted(DEVICES)), default="a100", show_default=True, help="Roofline."
)
@click.option("--flops", type=float, help="Operations a second of a device that is not listed.")
@click.option("--bandwidth", type=float, help="Bytes a second of a device that is not listed.")
@click.option("--trace", type=Path, metavar="FILE", help="Step counts of a trace of `unmask probe`.")
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1, MOST_TOKENS),
    default=128,
    show_default=True,
    help="Prompt length.",
)
@click.option(
    "--new-tokens", type=click.IntRange(1, MOST_TOKENS), default=256, show_default=True, help="Answer length."
)
@click.option("--sub-block-size", type=click.IntRange(min=1), help="As in decoding. [the family's]")
@cache_option
@click.option("--refresh-every", type=click.IntRange(min=1), metavar="STEPS", help="As in decoding. [never]")
@click.option(
    "--against",
    type=click.Choice(get_args(CacheName)),
    help="Cache of the baseline, to price a cache itself: --cache dual --against none. [the same cache]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ceiling(
    policies: tuple[str, ...],
    model: str,
    device: str,
    flops: float | None,
    bandwidth: float | None,
    trace: Path | None,
    prompt_tokens: int,
    new_tokens: int,
    sub_block_size: int | None,
    cache: CacheName | None,
    refresh_every: int | None,
    against: CacheName | None,
    as_json: bool,
) -> None:
    """Show what policies can save at the very most, and so the highest speed-up on a device's roofline.

    Both sides take the same steps; real decodings under reuse take more. Batch 1. A policy is written as
    layer_reuse:k=2,layers=middle,on=sub+block or as JSON or as the name of a .toml or .json file.

    \b
    Examples:
      unmask ceiling layer_reuse:k=2,unit=output trim:keep=0 --model path/to/checkpoint --device rtx6000
      unmask ceiling layer_reuse:k=3 --model Efficient-Large-Model/Fast_dLLM_v2_7B
      unmask ceiling '{"kind": "adaptive", "budget": 0.3}' --model path/to/checkpoint --trace trace.npz
      unmask ceiling full trim:inside=true --model GSAI-ML/LLaDA-8B-Instruct --cache dual --against none
    """
    config = find_config(model)
    settings = DecodeSpec(sub_block_size=sub_block_size, cache=cache, refresh_every=refresh_every)
    script = replace(
        script_of(config.decoded(settings), config.family), prompt_tokens=prompt_tokens, new_tokens=new_tokens
    )
    if trace:
        unmasked, leftmost = recorded_steps(trace)
        script = replace(script, unmasked=unmasked, leftmost=leftmost)
    baseline = None
    if against is not None:
        other = script_of(
            config.decoded(DecodeSpec(sub_block_size=sub_block_size, cache=against)), config.family
        )
        baseline = replace(script, sub_block_size=other.sub_block_size, cache=other.cache, refresh_every=None)
    specs = [read_policy(text) for text in policies]
    on = _device(device, flops, bandwidth)
    ceilings = [ceiling_of(spec, config.shape, on, script, baseline) for spec in specs]
    if baseline is not None:  # what is priced then is the cache
        ceilings = [
            replace(bound, dead=None) if spec == FullSpec() else bound
            for spec, bound in zip(specs, ceilings, strict=True)
        ]
    equal = equal_by_construction(specs, config.num_layers)
    if as_json:
        click.echo(json.dumps(_document(policies, ceilings, equal, on, config)))
    else:
        _show(policies, ceilings, equal, on)


def _device(name: str, flops: float | None, bandwidth: float | None) -> Device:
    if flops is None and bandwidth is None:
        return DEVICES[name]
    if not (flops and bandwidth and 0 < flops < math.inf and 0 < bandwidth < math.inf):
        raise UnmaskError("Give both --flops and --bandwidth as positive numbers, or neither.")
    return Device("yours", flops, bandwidth)


def _document(
    policies: tuple[str, ...],
    ceilings: list[Ceiling],
    equal: list[list[int]],
    device: Device,
    config: ModelConfig,
) -> dict[str, Any]:
    return {
        "device": asdict(device),
        "layers": config.num_layers,
        "ceilings": [
            {"policy": text, **asdict(bound)} for text, bound in zip(policies, ceilings, strict=True)
        ],
        "equal_by_construction": [[policies[index] for index in group] for group in equal],
    }


def _show(policies: tuple[str, ...], ceilings: list[Ceiling], equal: list[list[int]], device: Device) -> None:
    table = Table(title=f"Ceilings at batch 1 on {device.name}: equal steps, savings only", box=SIMPLE)
    table.add_column("policy", overflow="fold")
    for heading in ("FLOPs saved", "bytes saved", "speed-up at most"):
        table.add_column(heading, justify="right")
    table.add_column("remark")
    for text, bound in zip(policies, ceilings, strict=True):
        saved = f"{bound.flops_saved:.1%}", f"{bound.bytes_saved:.1%}"
        table.add_row(text, *saved, f"{bound.speedup:.3f}x", f"dead: {bound.dead}" if bound.dead else "")
    screen = console(PLAIN_WIDTH)
    screen.print(table)
    for group in equal:
        screen.print(f"Equal by construction: {', '.join(policies[index] for index in group)}")
