"""`unmask report`: results.md and a self-contained page with pictures. Needs no torch unless samples are replayed."""

from dataclasses import replace
from pathlib import Path

import click

from unmask.cli.recipes import criteria_of
from unmask.cli.sweep_options import store_option
from unmask.store.experiments import experiment_names
from unmask.store.store import Store


@click.command(short_help="Write results.md and report.html.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@store_option
@click.option("--foreign", multiple=True, metavar="NAME", help="Report an import; may be repeated.")
@click.option(
    "--criteria", type=Path, metavar="RECIPE", help="Judge imports by the [success] table of this recipe."
)
@click.option(
    "--output", "-o", type=Path, metavar="DIR", help="Where to write. [reports/<experiment> in the store]"
)
@click.option(
    "--replay",
    type=click.IntRange(min=0),
    metavar="N",
    help="Samples of the denoising viewer; 0 for none. [2, if the checkpoint is at hand and small]",
)
@click.option("--open", "open_it", is_flag=True, help="Open the page in a browser.")
def report(
    experiments: tuple[str, ...],
    store: Path | None,
    foreign: tuple[str, ...],
    criteria: Path | None,
    output: Path | None,
    replay: int | None,
    open_it: bool,
) -> None:
    """Write what experiments have shown: results.md to read anywhere, report.html with pictures and samples.

    Several names give one report with a summary that spans them; without names all experiments are reported. The
    page is one file that asks nothing of any network.

    \b
    Examples:
      unmask report 00_baseline_embedded --open
      unmask report 00_baseline 01_residual --output both
      unmask report --foreign seed --criteria recipes/00_baseline
    """
    from unmask.report.flips import flips_of
    from unmask.report.gather import gather
    from unmask.report.replays import with_replays
    from unmask.report.write import folder_of, write_report

    place = Store.at(store)
    names = list(dict.fromkeys(experiments))
    imports = list(dict.fromkeys(foreign))
    if not names and not imports:
        names = experiment_names(place)
    document = gather(place, names, imports, criteria_of(criteria))
    tasks = [task for part in document.parts for task in part.tasks]
    document = replace(document, flips=tuple(flips_of(tasks)))
    if replay != 0:
        document = with_replays(document, place, replay, lambda text: click.echo(text, err=True))
    for part in document.parts:
        if part.verdict is not None:
            reason = part.verdict.reason.partition(": ")[0].rstrip(".")
            click.echo(f"{part.verdict.experiment}: {part.verdict.answer}. {reason}.")
    for file in write_report(document, output or folder_of(place, names, imports)):
        click.echo(str(file))
    if open_it:
        click.launch(str(file.resolve()))
