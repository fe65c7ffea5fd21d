"""`unmask new` and `unmask prepare`: a recipe of one's own, and the lock of what it depends on."""

from pathlib import Path

import click

from unmask.analysis.words import counted
from unmask.cli.options import check_writable
from unmask.errors import UnmaskError


@click.command()
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
    from unmask import lab

    file = lab.new(name, folder)
    click.echo(f"{file} is ready; see `unmask plan {file.parent}`.")


@click.command()
@click.argument("recipe", type=Path, required=False)
@click.option("--tasks", "-t", metavar="NAME,NAME", help="Tasks and groups, with commas.")
@click.option("--model", "-m", metavar="PATH_OR_HUB_ID", help="Checkpoint folder or hub id.")
@click.option("--revision", help="Branch, tag or commit of a hub id.")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [the hub]")
@click.option("--allow-code", is_flag=True, help="Prepare tasks that run model-written programs too.")
@click.option(
    "--output",
    "-o",
    type=Path,
    metavar="FILE",
    help="The lock. [recipe.lock beside the recipe, or unmask.lock]",
)
def prepare(
    recipe: Path | None,
    tasks: str | None,
    model: str | None,
    revision: str | None,
    data: Path | None,
    allow_code: bool,
    output: Path | None,
) -> None:
    """Fetch a checkpoint and the samples of tasks into the hub's cache, and write a lock of their hashes.

    Run it where there is a network, on a login node for instance. `unmask run` and `unmask eval --lock FILE`
    then work offline and refuse anything that is not what was locked. The lock never holds a token.

    \b
    Examples:
      unmask prepare recipes/00_baseline
      unmask prepare --tasks gsm8k,mmlu --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask prepare --tasks unmask_arith --model embedded --output embedded.lock
    """
    if recipe is not None:
        if tasks or model or revision or data:
            raise UnmaskError("A recipe names its own model, tasks and data; give the recipe alone.")
        from unmask.lab.recipes import open_recipe

        opened = open_recipe(recipe)
        names = [task.name for task in opened.recipe.tasks]
        places = {
            name: (opened.checkpoint_of(each), each.revision) for name, each in opened.recipe.models.items()
        }
        (model, revision), data = places.pop(opened.recipe.model.name), opened.data
        allow_code, output = opened.recipe.evaluation.allow_code, output or opened.lock_file
    elif tasks and model:
        names, output, places = tasks.split(","), output or Path("unmask.lock"), {}
    else:
        raise UnmaskError("Nothing to prepare; give a recipe, or --tasks and --model.")
    check_writable(output)
    from unmask.evaluation.lock import prepare as lock_all

    lock = lock_all(names, model, output, revision, data, allow_code, places)
    click.echo(
        f"{counted(len(lock.files), 'file')} and {counted(len(lock.tasks), 'task')} locked in {output}"
    )
