"""`unmask probe`: records how far layers move between denoising steps, and draws it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from unmask.cli.loading import load_with_bar
from unmask.cli.options import decode_options, decode_spec
from unmask.cli.prompts import Encoder, from_arguments, from_lines
from unmask.cli.results import check_writable
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.hub import EMBEDDED, find_checkpoint

PICTURES = (".png", ".svg", ".pdf")
MEASURES = ("drift_input", "drift_output", "drift_residual")
ERRORS = ("error_output", "error_residual", "error_attention", "error_mlp")


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option(
    "--model", "-m", default=EMBEDDED, show_default=True, metavar="PATH_OR_HUB_ID", help="Checkpoint."
)
@click.option("--revision", help="Branch, tag or commit of a hub id.")
@click.option("--ids", multiple=True, metavar="1,2,3", help="A prompt as token ids. Repeatable.")
@click.option("--input", "-i", "source", metavar="FILE", help="Prompts as JSON lines; - is standard input.")
@click.option("--output", "-o", type=Path, metavar="FILE", help="Write the trace as .npz.")
@click.option("--plot", type=Path, metavar="FILE", help="Draw the layer-by-step heat map (.png, .svg, .pdf).")
@click.option(
    "--measure",
    type=click.Choice(MEASURES + ERRORS),
    default="error_residual",
    show_default=True,
    help="What --plot draws.",
)
@click.option("--chat/--raw", default=None, help="Apply the chat template to text or not. [if there is one]")
@decode_options
@click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]")
@click.option("--dtype", help="float32, float16 or bfloat16. [what suits the device]")
@click.option("--mask-token-id", type=int, help="Mask token, where the checkpoint names none.")
def probe(
    prompts: tuple[str, ...],
    model: str,
    revision: str | None,
    ids: tuple[str, ...],
    source: str | None,
    output: Path | None,
    plot: Path | None,
    measure: str,
    chat: bool | None,
    decode_file: Path | None,
    device: str | None,
    dtype: str | None,
    mask_token_id: int | None,
    **flags: Any,
) -> None:
    """Decode prompts once at full compute and record, for every denoising step, layer and position, how
    far the layer's input, output and residual moved since the position was last fed, and the error that
    replaying each unit there would have made.

    \b
    Examples:
      unmask probe "Why is the sky blue?" --model path/to/checkpoint --output trace.npz --plot trace.png
      unmask probe --input prompts.jsonl --model path/to/checkpoint --output trace.npz
    """
    if sum(map(bool, (prompts, ids, source))) != 1:
        raise click.UsageError("Give prompts in one way: as arguments, with --ids, or with --input.")
    if not (output or plot):
        raise click.UsageError("Give --output, --plot or both: there is nothing to do otherwise.")
    if output:
        check_writable(output)
    if plot:
        check_writable(plot, "--plot")
        if plot.suffix.lower() not in PICTURES:
            raise UnmaskError(f"{plot.name}: --plot writes {', '.join(PICTURES)}; choose one of them.")
        if find_spec("matplotlib") is None:
            raise UnmaskError("--plot needs matplotlib; install it with `pip install matplotlib`.")
    spec = decode_spec(decode_file, flags)
    items = from_lines(source) if source else from_arguments(prompts, ids)
    checkpoint = open_checkpoint(find_checkpoint(model, revision))
    spec.resolved_block_size(checkpoint.config.block_size)
    encoder = Encoder(checkpoint, chat, mask_token_id)
    items = [encoder.encoded(item) for item in items]

    from unmask.engine.probe import probe as record

    trace = record(
        load_with_bar(checkpoint, device, dtype, mask_token_id), [item.request for item in items], spec
    )
    if not trace.step:
        raise UnmaskError("No denoising step took place, so there is nothing to record; ask for more tokens.")
    if output:
        trace.save(output)
        click.echo(f"{len(trace.step)} denoising steps written to {output}", err=True)
    if plot:
        from unmask.cli.heat_map import draw_heat_map

        draw_heat_map(trace.arrays(), measure, plot)
        click.echo(f"Heat map of {measure} written to {plot}", err=True)
