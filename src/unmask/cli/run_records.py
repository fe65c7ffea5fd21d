"""What is written down before a sweep starts: every run's identity, its worker's settings, and the experiment."""

from collections.abc import Sequence

from unmask.cli.recipes import OpenRecipe
from unmask.launch.todo import Item, freeze
from unmask.store.experiments import Member, write_experiment
from unmask.store.store import Store


def record(store: Store, opened: OpenRecipe, items: Sequence[Item]) -> None:
    """Write down which runs the experiment stands for, and what each run is, before anything starts."""
    recipe = opened.recipe
    members = [
        Member(
            configuration=item.planned.configuration,
            task=item.planned.task,
            limit=item.planned.limit,
            id=item.run.id,
            folder=item.run.name,
            kind=item.planned.kind,
        )
        for item in items
    ]
    text = opened.file.read_text(encoding="utf-8")
    write_experiment(store, recipe.name, opened.file, text, members, recipe.control)
    freeze_runs(store, opened, items)


def freeze_runs(store: Store, opened: OpenRecipe, items: Sequence[Item]) -> None:
    """Write down what each run is; a canary's runs belong to no experiment."""
    evaluation = opened.recipe.evaluation
    worker = {
        "experiment": opened.recipe.name,
        "lock": str(opened.lock_file),
        "checkpoint": opened.checkpoint,
        "data": None if opened.data is None else str(opened.data),
        "batch_size": evaluation.batch_size,
        "device": evaluation.device,
        "allow_code": evaluation.allow_code,
    }
    freeze(store, items, worker)
