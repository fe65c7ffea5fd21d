"""Runs of a recipe handed to the cluster, and waited for where something depends on them."""

import time
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console

from unmask.cli.queue import job_words
from unmask.cli.recipes import OpenRecipe
from unmask.cli.sweep_table import counts
from unmask.launch.slurm import submit
from unmask.launch.todo import Item, items_of
from unmask.store.experiments import append_jobs
from unmask.store.store import Store

PAUSE = 5.0
UNDER_WAY = ("pending", "running")


def submit_runs(opened: OpenRecipe, store: Store, todo: Sequence[Item]) -> None:
    """Submit runs as arrays; every job id is on record before the next array is tried."""
    name = opened.recipe.name
    folder = (store.root / "experiments" / name / "slurm").resolve()
    resources = msgspec.to_builtins(opened.recipe.resources)
    for array in submit([item.job for item in todo], folder, resources, name):
        append_jobs(store, name, [{"job": each.job_id, "run": each.job.run} for each in array])
        click.echo(f"{len(array)} runs submitted as job {array[0].job_id.split('_')[0]}.")


def wait_for(
    store: Store, experiment: str, items: Sequence[Item], screen: Console, pause: float = PAUSE
) -> None:
    """Wait until no run of these waits or is under way any more."""
    planned = [item.planned for item in items]
    with screen.status("waiting for the queue") as line:
        while True:
            now = items_of(store, planned, job_words(store, [experiment]))
            if not any(item.state.status in UNDER_WAY for item in now):
                return
            line.update(counts(now))
            time.sleep(pause)
