"""`unmask probe`: records how far layers move between denoising steps, and draws it."""

import io
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unmask.cli.options import (
    CheckpointOptions,
    check_writable,
    checkpoint_options,
    decode_options,
    decode_spec,
    hint_at_chat,
)
from unmask.cli.prompts import encoded, holds_text, prompt_options, read_prompts
from unmask.cli.screen import load_with_bar
from unmask.errors import UnmaskError
from unmask.store.files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURES = (".png", ".svg", ".pdf")
MEASURES = ("drift_input", "drift_output", "drift_residual")
ERRORS = ("error_output", "error_residual", "error_attention", "error_mlp")
MOST_PANELS = 4


@click.command()
@prompt_options
@click.option("--output", "-o", type=Path, metavar="FILE", help="Write the trace as .npz.")
@click.option("--plot", type=Path, metavar="FILE", help="Draw the layer-by-step heat map (.png, .svg, .pdf).")
@click.option(
    "--measure",
    type=click.Choice(MEASURES + ERRORS),
    default="error_residual",
    show_default=True,
    help="What --plot draws.",
)
@checkpoint_options
@decode_options
def probe(
    prompts: tuple[str, ...],
    ids: tuple[str, ...],
    source: str | None,
    chat: bool | None,
    output: Path | None,
    plot: Path | None,
    measure: str,
    decode_file: Path | None,
    **flags: Any,
) -> None:
    """Decode prompts once at full compute and record, for every denoising step, layer and position, how
    far the layer's input, output and residual moved since the position was last fed, and the error that
    replaying each unit there would have made.

    \b
    Examples:
      unmask probe "Why is the sky blue?" --chat --model path/to/checkpoint --output trace.npz --plot trace.png
      unmask probe --input prompts.jsonl --model path/to/checkpoint --output trace.npz
    """
    options = CheckpointOptions.taken_from(flags)
    requests = read_prompts(prompts, ids, source)
    _check_outputs(output, plot)
    decode = decode_spec(decode_file, flags)
    checkpoint = options.opened()
    spec = checkpoint.config.decoded(decode)
    with_ids = encoded(requests, checkpoint, options, chat)

    from unmask.engine.probe import probe as record

    engine = load_with_bar(checkpoint, options.device, options.dtype, options.mask_token_id)
    if holds_text(requests):
        hint_at_chat(checkpoint, chat)
    trace = record(engine, [numbered.request for numbered in with_ids], spec)
    if not trace.step:
        raise UnmaskError("No denoising step took place, so there is nothing to record; ask for more tokens.")
    if output:
        trace.save(output)
        click.echo(f"{len(trace.step)} denoising steps written to {output}", err=True)
    if plot:
        draw_heat_map(trace.arrays(), measure, plot)
        click.echo(f"Heat map of {measure} written to {plot}", err=True)


def _check_outputs(output: Path | None, plot: Path | None) -> None:
    """Refuse files that could not be written after all the work."""
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


def draw_heat_map(trace: "dict[str, NDArray[Any]]", measure: str, path: Path) -> None:
    """Average a measure over offsets and draw it for the first prompts of a trace, whole or not at all.

    Layers go upward, denoising steps to the right; there is one panel a prompt.
    """
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

    prompts = list(dict.fromkeys(trace["prompt"].tolist()))[:MOST_PANELS]
    figure = Figure(figsize=(11, 1.2 + 3.0 * len(prompts)), layout="constrained")
    panels = figure.subplots(len(prompts), 1, squeeze=False)[:, 0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice")
        values = np.nanmean(trace[measure], axis=2)
    top = float(np.nanquantile(values, 0.99)) if np.isfinite(values).any() else 1.0
    colours = mpl.colormaps["viridis"].with_extremes(bad="0.85")
    for panel, prompt in zip(panels, prompts, strict=True):
        chosen = trace["prompt"] == prompt
        panel.imshow(
            values[chosen].T,
            origin="lower",
            aspect="auto",
            cmap=colours,
            vmin=0,
            vmax=top,
            interpolation="nearest",
        )
        for step in np.flatnonzero(np.diff(trace["block"][chosen])):
            panel.axvline(step + 0.5, color="white", linewidth=1)
        panel.set(ylabel="layer", title=f"prompt {prompt + 1}")
        panel.yaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel(
        "denoising step (white lines: block boundaries; grey: first step, nothing to compare with)"
    )
    figure.colorbar(
        panels[0].images[0], ax=list(panels), label=measure.replace("_", " ") + ", mean over positions fed"
    )
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lower().removeprefix("."), dpi=130)
    write_atomically(path, picture.getvalue())
