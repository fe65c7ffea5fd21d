"""`unmask gpu-check`: the first hour on a new machine, part by part, and one folder to send back."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from unmask.cli.screen import say
from unmask.errors import UnmaskError
from unmask.lab.gpu_check import gpu_check
from unmask.lab.gpu_parts import NAMES, TOTAL_SECONDS, CheckRequest, PartVerdict
from unmask.model.hub import find_config, in_cache, is_hub_id
from unmask.spec.recipe import EMBEDDED

MEASURED = ("device", "memory", "launches", "speed", "graphs", "published")


@click.command()
@click.argument("checkpoint", default=EMBEDDED[0], metavar="[PATH_OR_HUB_ID]")
@click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]")
@click.option("--dtype", help="float32, float16 or bfloat16. [what suits the device]")
@click.option("--output", "-o", type=Path, metavar="DIR", help="A new folder. [gpu-check-TIME]")
@click.option("--vectors", type=Path, metavar="DIR", help="Golden vectors. [tests/golden of the source tree]")
@click.option(
    "--run-published-code",
    is_flag=True,
    help="Run the code in the checkpoint's folder beside ours; it may do anything.",
)
@click.option("--part", type=click.Choice(MEASURED), help="Measure only this, here, and print JSON.")
@click.pass_context
def check(
    ctx: click.Context,
    checkpoint: str,
    device: str | None,
    dtype: str | None,
    output: Path | None,
    vectors: Path | None,
    run_published_code: bool,
    part: str | None,
) -> None:
    """Find out in ten minutes at most whether this machine decodes right, and how fast against what is predicted.

    Each part runs in a process of its own and gets a verdict; one that fails does not end the others. The folder
    holds a summary (Markdown and JSON) and logs, without secrets, to be sent back. The exit code is 1 if a part is bad
    or failed.

    \b
    Examples:
      unmask gpu-check
      unmask gpu-check path/to/Fast_dLLM_v2_7B
      unmask gpu-check --device cpu
    """
    if part:
        click.echo(json.dumps(_one_part(part, checkpoint, device, dtype, run_published_code)))
        return
    if is_hub_id(checkpoint) and checkpoint not in EMBEDDED and not in_cache(checkpoint):
        raise UnmaskError(f"{checkpoint} is not here; fetch it first, as in `hf download {checkpoint}`.")
    find_config(checkpoint)
    folder = output or Path(f"gpu-check-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    wanted = CheckRequest(checkpoint, device, dtype, folder, vectors, run_published_code)
    verdicts: list[str] = []
    for news in gpu_check(wanted):
        if news == NAMES[0]:
            click.echo(f"At most {TOTAL_SECONDS / 60:.0f} minutes; everything is written to {folder}.")
        if isinstance(news, PartVerdict):
            verdicts.append(news.verdict)
            say(f"{news.verdict:8}{news.says} ({news.seconds:.0f} s)")
        else:
            click.echo(f"{NAMES.index(news) + 1:2}/{len(NAMES)} {news:35}", nl=False)
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    click.echo(f"{counts}. Send back {folder}, beginning with {folder / 'summary.md'}.")
    ctx.exit(1 if {"bad", "failed"} & set(verdicts) else 0)


def _one_part(
    part: str, checkpoint: str, device: str | None, dtype: str | None, allowed: bool
) -> dict[str, object]:
    from unmask.evaluation.device_parts import PARTS, Place, published

    place = Place(checkpoint, device, dtype)
    return published(place, allowed) if part == "published" else PARTS[part](place)
