"""The screen of the verbs about sweeps: a console, statuses in their colours, sentences beside the output."""

from collections import Counter
from collections.abc import Iterable

import click
from rich.console import Console
from rich.text import Text

from unmask.lab.recipes import Message

PLAIN_WIDTH = 140
"""Columns where no terminal says otherwise."""
STYLES = {
    "done": "green",
    "running": "cyan",
    "pending": "blue",
    "interrupted": "yellow",
    "failed": "red",
    "retracted": "magenta",
    "missing": "dim",
}


def console() -> Console:
    """A console that is wide enough for a table in a file too."""
    screen = Console(highlight=False)
    if not screen.is_terminal:
        screen.width = PLAIN_WIDTH
    return screen


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(status, STYLES[status])


def counts(statuses: Iterable[str]) -> str:
    """How many runs stand where."""
    tally = Counter(statuses)
    return ", ".join(f"{tally[status]} {status}" for status in STYLES if tally[status])


def tell(message: Message) -> None:
    """Show a sentence beside what is printed."""
    click.echo(message.text, err=True)
