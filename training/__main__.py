"""`python -m training`: train, resume, plot and export."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click
import torch

from training import progress
from training.checkpoint import FILE_NAME
from training.export import export
from training.probe import probe
from training.recipe import RECIPES
from training.start import write_start
from training.task_files import write_task_files
from training.trainer import StepReport, Trainer, run
from training.vocabulary import build_tokenizer
from unmask.errors import UnmaskError

_folder = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
_recipe = click.option("--recipe", type=click.Choice(sorted(RECIPES)), default="embedded", show_default=True)


@click.group()
def main() -> None:
    """Train the embedded models; FOLDER holds the checkpoint and the log."""


def _trainer(recipe: str, seed: int | None, device: str) -> Trainer:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UnmaskError("There is no CUDA device; use --device cpu.")
    tokenizer = build_tokenizer()
    plan = RECIPES[recipe](tokenizer.get_vocab_size())
    return Trainer(plan if seed is None else dataclasses.replace(plan, seed=seed), tokenizer, device)


@main.command()
@_folder
@_recipe
@click.option("--seed", type=int, default=None, help="Seed of weights and data; the recipe's own by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads.")
@click.option(
    "--save-every", type=click.IntRange(1), default=50, show_default=True, help="Steps between saves."
)
@click.option(
    "--probe-every",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Steps between probes.",
)
@click.option(
    "--probe-size",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="Questions a task.",
)
@click.option(
    "--until", type=click.IntRange(1), default=None, help="Stop after this step; a later call goes on."
)
def train(
    folder: Path,
    recipe: str,
    seed: int | None,
    device: str,
    threads: int,
    save_every: int,
    probe_every: int,
    probe_size: int,
    until: int | None,
) -> None:
    """Train by a recipe, going on from the checkpoint in FOLDER if there is one."""
    torch.set_num_threads(threads)
    trainer = _trainer(recipe, seed, device)
    if (folder / FILE_NAME).is_file():
        trainer.restore(folder)
    journal = progress.Journal(folder, trainer.step)
    with progress.bar() as bar:
        task = bar.add_task("start", total=trainer.recipe.steps, completed=trainer.step)

        def watch(report: StepReport) -> None:
            journal.write(dataclasses.asdict(report))
            bar.update(task, completed=report.step, description=f"{report.stage} loss {report.loss:.3f}")
            if probe_every and report.step % probe_every == 0:
                found = probe(trainer.network, trainer.encoder, probe_size, trainer.recipe.manner.decode)
                journal.write({"step": report.step, "probe": found})

        run(trainer, folder, save_every=save_every, watch=watch, until=until)


@main.command(name="plot")
@_folder
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def plot_command(folder: Path, target: Path) -> None:
    """Draw the loss and the held-out accuracy of FOLDER into TARGET (png or svg)."""
    progress.plot(folder, target)


@main.command(name="export")
@_folder
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@_recipe
def export_command(folder: Path, target: Path, recipe: str) -> None:
    """Write the model of FOLDER as a Hugging Face checkpoint into TARGET."""
    trainer = _trainer(recipe, None, "cpu")
    trainer.restore(folder)
    export(trainer.network, trainer.encoder, target, trainer.recipe.manner.publication)


@main.command(name="tasks")
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
def tasks_command(target: Path) -> None:
    """Write the held-out rows of the shipped tasks into TARGET."""
    write_task_files(target)


@main.command(name="start")
@click.argument("checkpoint", type=click.Path(file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def start_command(checkpoint: Path, target: Path) -> None:
    """Merge the layers of CHECKPOINT in pairs and write TARGET, a file that a recipe can start from."""
    write_start(checkpoint, target)


if __name__ == "__main__":
    try:
        main(standalone_mode=True)
    except UnmaskError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
