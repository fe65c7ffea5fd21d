"""Loads a checkpoint for a verb, with a bar on a terminal."""

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from unmask.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from unmask.engine.engine import Engine

SMALL_MODEL = 50_000_000
"""Parameters up to which one thread decodes faster than several."""


def load_with_bar(
    checkpoint: Checkpoint, device: str | None, dtype: str | None, mask_token_id: int | None = None
) -> "Engine":
    """Load the weights of a checkpoint that was opened before; the engine shares its tokenizer."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("Loading {task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=console,
        transient=True,
    )
    total = sum(checkpoint.tensors[name].nbytes for name in checkpoint.config.tensor_shapes())
    with bar if console.is_terminal else nullcontext():
        task = bar.add_task(checkpoint.folder.name, total=total)
        bar.refresh()

        from unmask.loading import load  # torch takes a second or two: the bar is there already

        engine = load(checkpoint, device, dtype, mask_token_id, progress=lambda size: bar.advance(task, size))
    _limit_threads(engine)
    return engine


def _limit_threads(engine: "Engine") -> None:
    """A small model's products are too short to share: threads would wait for each other, not for work."""
    import torch

    chosen_by_user = "OMP_NUM_THREADS" in os.environ
    if (
        engine.transformer.device.type == "cpu"
        and not chosen_by_user
        and engine.config.parameters < SMALL_MODEL
    ):
        torch.set_num_threads(1)
