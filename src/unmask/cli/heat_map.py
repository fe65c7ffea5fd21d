"""Draws a probe's trace: layers upward, denoising steps to the right, one panel a prompt."""

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unmask.cli.results import write_atomically

MOST_PANELS = 4


def draw_heat_map(trace: dict[str, NDArray[Any]], measure: str, path: Path) -> None:
    """Average a measure over positions and draw it for the first prompts of a trace, whole or not at all."""
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
        for place in np.flatnonzero(np.diff(trace["block"][chosen])):
            panel.axvline(place + 0.5, color="white", linewidth=1)
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
