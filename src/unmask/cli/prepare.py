"""`unmask prepare`: fetches checkpoint and data once, and locks their hashes for workers without a network."""

from pathlib import Path

import click

from unmask.cli.results import check_writable, write_atomically
from unmask.model.hub import find_checkpoint


@click.command(short_help="Fetch checkpoint and data once.")
@click.option("--tasks", "-t", required=True, metavar="NAME,NAME", help="Tasks and groups, with commas.")
@click.option("--model", "-m", required=True, metavar="PATH_OR_HUB_ID", help="Checkpoint folder or hub id.")
@click.option("--revision", help="Branch, tag or commit of a hub id.")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [the hub]")
@click.option("--allow-code", is_flag=True, help="Prepare tasks that run model-written programs too.")
@click.option(
    "--output",
    "-o",
    type=Path,
    default=Path("unmask.lock"),
    show_default=True,
    metavar="FILE",
    help="The lock.",
)
def prepare(
    tasks: str, model: str, revision: str | None, data: Path | None, allow_code: bool, output: Path
) -> None:
    """Fetch a checkpoint and the rows of tasks into the hub's cache, and write a lock of their hashes.

    Run it where there is a network, on a login node for instance. `unmask eval --lock FILE` then works
    offline and refuses anything that is not what was locked. The lock never holds a token.

    \b
    Examples:
      unmask prepare --tasks gsm8k,mmlu --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask prepare --tasks unmask_arith --model embedded --output embedded.lock
    """
    check_writable(output)

    from huggingface_hub import HfApi

    from unmask.evaluation.definitions import check_names
    from unmask.evaluation.downloads import dataset_commits, pin_model
    from unmask.evaluation.lock import as_text, lock_of
    from unmask.evaluation.preflight import load_tasks

    names = check_names(tasks.split(","))
    commits = {} if data else dataset_commits(names, HfApi())
    loaded = load_tasks(names, data, allow_code=allow_code, revisions=commits)
    commit = pin_model(model, revision, HfApi())
    folder = find_checkpoint(model, commit or revision)
    lock = lock_of(model, folder, loaded, commit, commits)
    write_atomically(output, as_text(lock))
    click.echo(f"{len(lock.files)} files and {len(lock.tasks)} tasks locked in {output}")
