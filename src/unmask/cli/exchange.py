"""`unmask export`: results as CSV, Parquet, or the tree of summary.json that older scripts read."""

from pathlib import Path

import click

from unmask.cli.sweep_options import store_option
from unmask.errors import UnmaskError
from unmask.store.experiments import experiment_names, read_experiment
from unmask.store.export import Labelled, to_csv, to_parquet, to_tree
from unmask.store.index import Listing, listing
from unmask.store.store import Store


@click.command(short_help="Results as CSV, Parquet or summary.json files.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--output", "-o", type=Path, required=True, metavar="PATH", help="A .csv or .parquet file, or a folder."
)
@store_option
def export(experiments: tuple[str, ...], output: Path, store: Path | None) -> None:
    """Write the results of experiments (all without a name) for other programs.

    A folder gets <task or task_limit_N>/<configuration>/summary.json; retracted results are left out of it and
    marked in tables. Files with other content are not replaced.

    \b
    Examples:
      unmask export --output results.csv
      unmask export 00_baseline --output artifacts
    """
    place = Store.at(store)
    found = listing(place)
    labelled = _labelled(place, found, experiments or tuple(experiment_names(place)))
    if not labelled:
        raise UnmaskError(
            f"There is no result in {place.root} to export; `unmask status` shows what is there."
        )
    if output.suffix == ".csv":
        click.echo(f"{to_csv(labelled, output)} rows written to {output}.")
    elif output.suffix == ".parquet":
        click.echo(f"{to_parquet(labelled, output)} rows written to {output}.")
    elif output.suffix:
        raise UnmaskError(
            f"{output} has an ending that is not known; use .csv, .parquet or the name of a folder."
        )
    else:
        click.echo(f"{len(to_tree(place, labelled, output))} summaries written below {output}.")


def _labelled(store: Store, listed: Listing, names: tuple[str, ...]) -> list[Labelled]:
    found = []
    for name in names:
        experiment = read_experiment(store, name)
        if experiment is None:
            known = ", ".join(experiment_names(store)) or "none"
            raise UnmaskError(f"There is no experiment {name} in {store.root}; there are {known}.")
        for member in experiment.members:
            if member.folder in listed.damaged:
                raise UnmaskError(listed.damaged[member.folder])
        found += [
            Labelled(
                record=listed.records[member.folder], experiment=name, configuration=member.configuration
            )
            for member in experiment.members
            if member.folder in listed.records
        ]
    return found
