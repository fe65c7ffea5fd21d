"""The screen that verbs share: a console, statuses in their colours, notes on stderr, the bar of a loading."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from textwrap import wrap
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from unmask.reading import printable

if TYPE_CHECKING:
    from unmask.engine.engine import Engine
    from unmask.lab.recipes import Message
    from unmask.model.checkpoint import Checkpoint

PLAIN_WIDTH = 140
"""Characters of a line where no terminal says otherwise."""
SMALL_MODEL = 50_000_000
"""Parameters up to which one thread decodes faster than several."""
STYLES = {
    "done": "green",
    "stopped": "bright_green",
    "running": "cyan",
    "pending": "blue",
    "unknown": "bright_yellow",
    "interrupted": "yellow",
    "failed": "red",
    "retracted": "magenta",
    "missing": "dim",
}


class Screen(Console):
    """A console for text of others: what looks like markup is text, and no character of it steers the terminal."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The parts of what is shown; only those of this program's own making control the terminal."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def say(text: str, err: bool = False) -> None:
    """Print a line in which text of others may stand."""
    click.echo(printable(text), err=err)


def console(plain_width: int = PLAIN_WIDTH) -> Screen:
    """A console that is wide enough for a table in a file too."""
    screen = Screen()
    if not screen.is_terminal:
        screen.width = plain_width
    return screen


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(status, STYLES[status])


def counts(statuses: Iterable[str]) -> str:
    """How many runs stand where."""
    tally = Counter(statuses)
    return ", ".join(f"{tally[status]} {status}" for status in STYLES if tally[status])


NARROW = 13
"""Letters of a line of a heading."""


def results_table(rows: Sequence[Mapping[str, str]], title: str) -> Table:
    """A table of rows whose last column is a status."""
    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0))
    for number, heading in enumerate(rows[0] if rows else ()):
        # Headings break rather than the figures below them.
        table.add_column("\n".join(wrap(heading, NARROW)), justify="right" if number > 1 else "left")
    for row in rows:
        *cells, status = row.values()
        table.add_row(*cells, status_text(status))
    return table


def tell(message: "Message") -> None:
    """Show a sentence beside what is printed."""
    say(message.text, err=True)


def load_with_bar(
    checkpoint: "Checkpoint", device: str | None, dtype: str | None, mask_token_id: int | None = None
) -> "Engine":
    """Load the weights of a checkpoint that was opened before; the engine shares its tokenizer."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    screen = Screen(stderr=True)
    bar = Progress(
        TextColumn("Loading {task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=screen,
        transient=True,
    )
    total = sum(checkpoint.tensors[name].nbytes for name in checkpoint.config.tensor_shapes())
    with bar if screen.is_terminal else nullcontext():
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
