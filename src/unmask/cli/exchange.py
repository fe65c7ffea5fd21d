"""`unmask export` and `unmask import`: results for other programs, and those of older scripts."""

from pathlib import Path

import click

from unmask import lab
from unmask.analysis.words import counted
from unmask.cli.options import store_option
from unmask.cli.screen import say


@click.command()
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
    written = lab.export(*experiments, output=output, store=store)
    what = "summaries written below" if written.is_tree else "rows written to"
    say(f"{written.count} {what} {written.path}.")


@click.command(name="import")
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
    imported = lab.import_summaries(folder, name, store=store)
    for problem in imported.problems:
        say(f"{problem.path}: {problem.says}", err=True)
    noun = "summary" if imported.added == 1 else "summaries"
    say(f"{imported.added} {noun} imported as {imported.name}, {len(imported.records)} in all.")
    if imported.problems:
        say(f"{counted(len(imported.problems), 'file')} could not be read.", err=True)
        raise click.exceptions.Exit(1)
