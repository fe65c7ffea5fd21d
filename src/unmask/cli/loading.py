"""Loads a checkpoint for a verb, with a bar on a terminal."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from unmask.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from unmask.engine.engine import Engine


def load_with_bar(
    checkpoint: Checkpoint, device: str | None, dtype: str | None, mask_token_id: int | None = None
) -> "Engine":
    """Load the weights of a checkpoint that was opened before."""
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

        return load(
            checkpoint.folder, device, dtype, mask_token_id, progress=lambda size: bar.advance(task, size)
        )
