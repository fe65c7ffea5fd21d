"""Options that the verbs about sweeps share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]

store_option = click.option(
    "--store", type=Path, metavar="DIR", help="Where results are. [UNMASK_STORE, or results]"
)


def selection(command: Command) -> Command:
    """Which runs of a recipe are meant."""
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Rows of each task instead of the recipe's.",
        ),
        click.option("--config", multiple=True, metavar="NAME", help="Only these configurations (patterns)."),
        click.option("--task", multiple=True, metavar="NAME", help="Only these tasks (patterns)."),
    ):
        command = option(command)
    return command
