"""`unmask logs`: what a run's worker has printed."""

from pathlib import Path

import click

from unmask.cli.sweep_options import store_option
from unmask.errors import UnmaskError
from unmask.launch.jobs import LOG
from unmask.store.store import Store


@click.command(short_help="What a run's worker has printed.")
@click.argument("run")
@store_option
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Which attempt. [the newest]")
@click.option("--path", "only_path", is_flag=True, help="Print the file's name only.")
def logs(run: str, store: Path | None, attempt: int | None, only_path: bool) -> None:
    """Print the log of a run: its id, or the beginning of it, as `unmask status` shows it.

    \b
    Examples:
      unmask logs f91f72e0
      tail -f $(unmask logs f91f72e0 --path)
    """
    folder = Store.at(store).open(run)
    attempts = folder.attempts()
    if attempt is not None:
        chosen = [one for one in attempts if int(one.number) == attempt]
        if not chosen:
            raise UnmaskError(f"{folder.name} has {len(attempts)} attempts, but no number {attempt}.")
        attempts = chosen
    files = [one.log for one in reversed(attempts) if one.log.exists()]
    files += [file for file in [folder.folder / LOG] if file.exists()]
    if not files:
        raise UnmaskError(f"{folder.name} has no log yet; `unmask status` says where it stands.")
    if only_path:
        click.echo(str(files[0]))
        return
    with files[0].open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            click.echo(line, nl=False)
