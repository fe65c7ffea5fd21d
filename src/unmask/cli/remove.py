"""`unmask rm`: deletes runs with everything in them."""

from pathlib import Path

import click

from unmask.cli.sweep_options import store_option
from unmask.errors import UnmaskError
from unmask.store.state import state_of
from unmask.store.store import Store


@click.command(name="rm", short_help="Delete runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@store_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(runs: tuple[str, ...], store: Path | None, yes: bool) -> None:
    """Delete runs: identity, attempts, answers and result. To keep an invalid result on record, retract it.

    \b
    Examples:
      unmask rm f91f72e0 4c0af06c
      unmask rm f91f72e0 --yes
    """
    place = Store.at(store)
    folders = [place.open(run) for run in runs]
    for folder in folders:
        if state_of(folder).status == "running":
            raise UnmaskError(f"{folder.name} is running; stop it with `unmask cancel {folder.id}` first.")
    if not yes:
        click.confirm(f"Delete {', '.join(folder.name for folder in folders)}?", abort=True)
    for folder in folders:
        folder.remove()
    click.echo(f"{len(folders)} runs deleted.")
