"""`unmask import`: reads trees of summary.json as older scripts wrote them."""

from pathlib import Path

import click

from unmask.cli.sweep_options import store_option
from unmask.evaluation.catalogue import metric_of
from unmask.store.foreign import import_tree
from unmask.store.store import Store


@click.command(name="import", short_help="Read results of older scripts.")
@click.argument("folder", type=Path)
@click.option("--name", metavar="NAME", help="What to call them. [the folder's name]")
@store_option
def import_summaries(folder: Path, name: str | None, store: Path | None) -> None:
    """Read every <task>/<configuration>/summary.json below a folder as foreign results.

    They are kept word by word, apart from your own runs, and never enter a table with them unasked.

    \b
    Examples:
      unmask import experiments/00_baseline/artifacts --name seed
      unmask check --foreign seed
    """
    found = import_tree(folder, Store.at(store), name or folder.resolve().name, metric_of)
    for problem in found.problems:
        click.echo(f"{problem.path}: {problem.says}", err=True)
    click.echo(f"{found.added} summaries imported as {found.name}, {len(found.records)} in all.")
    if found.problems:
        click.echo(f"{len(found.problems)} files could not be read.", err=True)
        raise click.exceptions.Exit(1)
