"""`unmask report`: results.md and a self-contained page with pictures. Needs no torch unless samples are replayed."""

from pathlib import Path

import click

from unmask import lab
from unmask.cli.options import store_option
from unmask.cli.screen import say, tell


@click.command()
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
    written = lab.report(
        *experiments,
        foreign=foreign,
        criteria=criteria,
        output=output,
        recordings=replay,
        store=store,
        on_event=tell,
    )
    for verdict in written.verdicts:
        say(f"{verdict.experiment}: {verdict.answer}. {verdict.reason}")
    say(str(written.markdown))
    say(str(written.page))
    if open_it:
        click.launch(str(written.page.resolve()))
