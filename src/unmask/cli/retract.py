"""`unmask retract`: an invalid result stays on record but enters no table."""

from pathlib import Path

import click

from unmask.cli.sweep_options import store_option
from unmask.store.store import Store


@click.command(short_help="Keep an invalid result out of every table.")
@click.argument("run")
@click.option("--reason", required=True, metavar="TEXT", help="What is wrong with it.")
@store_option
def retract(run: str, reason: str, store: Path | None) -> None:
    """Retract the result of a run: it stays on record with the reason and enters no table from now on.

    To compute it anew, use `unmask run RECIPE --force NAME`.

    \b
    Examples:
      unmask retract f91f72e0 --reason "the GPU was shared with another job"
    """
    folder = Store.at(store).open(run)
    folder.retract(reason)
    click.echo(f"{folder.name} is retracted.")
