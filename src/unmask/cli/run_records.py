"""What is written down before a sweep starts: every run's identity, its worker's settings, and the experiment."""

from collections.abc import Sequence
from contextlib import suppress

from unmask.cli.recipes import OpenRecipe
from unmask.errors import UnmaskError
from unmask.launch.todo import Item, freeze
from unmask.spec.sweep import sweep_of
from unmask.store.experiments import Member, read_experiment, write_experiment
from unmask.store.store import Store, run_id


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
    described = _described(store, opened)
    write_experiment(store, recipe.name, opened.file, text, members, recipe.control, described)
    freeze_runs(store, opened, items)


def _described(store: Store, opened: OpenRecipe) -> set[str]:
    """Ids of all runs that the recipe stands for, also under limits that were asked for before."""
    before = read_experiment(store, opened.recipe.name)
    limits = {None, *(member.limit for member in before.members)} if before else {None}
    found: set[str] = set()
    for limit in limits:
        with suppress(UnmaskError):  # a limit of earlier rows may exceed the present ones
            found |= {run_id(run.identity) for run in sweep_of(opened.recipe, opened.lock(), limit=limit)}
    return found


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
