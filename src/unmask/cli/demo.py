"""`unmask demo`: the recipe that ships with the package, from the sweep to the report and what it shows."""

from pathlib import Path

import click

from unmask import lab
from unmask.cli.run import SweepBars, show_outcome
from unmask.cli.screen import console, tell
from unmask.launch.slots import MOST_SLOTS
from unmask.store.environment import cores

USUAL_SLOTS = 2
"""More workers than this would mostly start up: the runs are short."""


@click.command()
@click.argument("folder", type=Path, default=Path("unmask-demo"))
@click.option(
    "--slots", type=click.IntRange(1, MOST_SLOTS), metavar="N", help="Runs at a time. [2, on one core 1]"
)
@click.option("--open", "open_it", is_flag=True, help="Open the report in a browser.")
def demo(folder: Path, slots: int | None, open_it: bool) -> None:
    """Try ways of reusing work on the model that ships with the package, and learn what they cost and save.

    It writes into FOLDER (unmask-demo where you are): the recipe, all results and a report to open in a browser.
    It needs no GPU and no network, and a few minutes on two cores. Interrupt it whenever you like: the same command
    goes on from there, and what is done is not run again.

    \b
    Examples:
      unmask demo
      unmask demo /tmp/first-look --open
    """
    screen = console()
    recipe = lab.demo(folder)
    store = folder / "results"
    screen.print(f"The recipe is {recipe}, results go to {store}.", markup=False)
    with SweepBars(screen) as bars:
        outcome = lab.run(
            recipe,
            slots=slots or min(USUAL_SLOTS, cores()),
            store=store,
            on_event=bars.show,
            retry_failed=True,
        )
    show_outcome(outcome, screen)
    written = lab.report(outcome.experiment, store=store, on_event=tell)
    for judged, sentences in zip(written.verdicts, written.lessons, strict=True):
        screen.print(f"{judged.answer.capitalize()}. {judged.reason}", markup=False)
        for sentence in sentences:
            screen.print(f"- {sentence}", markup=False)
    screen.print(
        f"Open {written.page} in a browser; `cd {folder}` and `unmask status` to look around.", markup=False
    )
    if open_it:
        click.launch(str(written.page.resolve()))
