"""`unmask new`: a folder for a new experiment, with a recipe that works and a proposal to fill in."""

from datetime import date
from pathlib import Path

import click

from unmask.errors import UnmaskError
from unmask.spec.recipe import NAME, RECIPE_FILE
from unmask.store.files import write_atomically

TEMPLATES = Path(__file__).parents[1] / "assets" / "experiment"


@click.command(short_help="Begin a new experiment.")
@click.argument("name")
@click.option(
    "--folder",
    type=Path,
    default=Path("recipes"),
    show_default=True,
    metavar="DIR",
    help="Where experiments are kept.",
)
def new(name: str, folder: Path) -> None:
    """Make a folder for an experiment: recipe.toml, proposal.md and log.md.

    The recipe runs as it is, on the embedded model, so that you can change it step by step.

    \b
    Examples:
      unmask new 05_mine
      unmask plan recipes/05_mine
    """
    if not NAME.fullmatch(name):
        raise UnmaskError(
            f"{name!r} is no name for an experiment; use letters, digits, dots, dashes and underscores."
        )
    place = folder / name
    if place.exists():
        raise UnmaskError(f"{place} is there already; choose another name.")
    place.mkdir(parents=True)
    for template in sorted(TEMPLATES.iterdir()):
        text = template.read_text(encoding="utf-8")
        filled = text.replace("@NAME@", name).replace("@DATE@", date.today().isoformat())
        write_atomically(place / template.name, filled)
    click.echo(f"{place / RECIPE_FILE} is ready; see `unmask plan {place}`.")
