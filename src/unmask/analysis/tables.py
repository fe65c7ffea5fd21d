"""Tables out of a store: of experiments, or of imports. The only file of the analysis that looks for runs."""

from collections.abc import Iterable
from pathlib import Path

from unmask.analysis.foreign import foreign_table
from unmask.analysis.own import entry_of, timings_of
from unmask.analysis.records import Entry, Experiment, Planned, Table, Timing, joined
from unmask.errors import UnmaskError
from unmask.spec.lock import Lock, read_lock
from unmask.spec.recipe import Recipe, SuccessSpec, parse_recipe
from unmask.store import RunFolder, Store
from unmask.store.experiments import Experiment as Written
from unmask.store.experiments import Member, experiment_names, read_experiment
from unmask.store.foreign import foreign_of
from unmask.store.result import TimingResult


def own_table(store: Store, names: Iterable[str] | None = None) -> Table:
    """The results of some experiments, or of all; what is retracted, superseded or not published stays out."""
    wanted = experiment_names(store) if names is None else list(names)
    return joined(*(experiment_table(store, name) for name in wanted))


def experiment_table(store: Store, name: str) -> Table:
    """The results of one experiment."""
    planned = read_experiment(store, name)
    if planned is None:
        known = ", ".join(experiment_names(store)) or "none yet"
        raise UnmaskError(f"There is no experiment {name!r} in {store.root}; there are: {known}.")
    lock = _lock(planned)
    entries: list[Entry] = []
    timings: list[Timing] = []
    missing: list[Planned] = []
    retracted: list[Planned] = []
    for member in planned.members:
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result()
        if result is None:
            missing.append(_planned(member))
        elif run.retraction() is not None:
            retracted.append(_planned(member))
        elif isinstance(result, TimingResult):
            timings += timings_of(name, result)
        else:
            same = lock is not None and lock.weights == result.identity.get("weights")
            shape = lock.shape if lock is not None and same else None
            entries.append(entry_of(name, member.configuration, result, run.folder, shape))
    recipe = _recipe(planned)
    missing += _never_started(recipe, planned.members) if recipe else []
    experiment = Experiment(
        name=name,
        control=planned.control,
        success=recipe.success if recipe else None,
        missing=tuple(missing),
        retracted=tuple(retracted),
    )
    return Table((experiment,), tuple(entries), tuple(timings))


def import_table(store: Store, name: str, success: SuccessSpec | None = None) -> Table:
    """The imported summaries of one name, judged by the given criteria if there are any."""
    return foreign_table(name, foreign_of(store, name), success)


def _recipe(planned: Written) -> Recipe | None:
    """The recipe as it was planned; one that this version no longer understands has no criteria."""
    try:
        return parse_recipe(planned.recipe_text, planned.recipe)
    except UnmaskError:
        return None


def _lock(planned: Written) -> Lock | None:
    """The lock beside the recipe, if it is still there: it knows the model's shape."""
    try:
        return read_lock(Path(planned.recipe).with_suffix(".lock"))
    except (UnmaskError, OSError):
        return None


def _planned(member: Member) -> Planned:
    return Planned(None if member.kind == "timing" else member.configuration, member.task, member.limit)


def _never_started(recipe: Recipe, members: Iterable[Member]) -> list[Planned]:
    """Runs that the recipe stands for and no call has asked for yet; a limited run is no substitute."""
    known = {(member.kind, member.configuration, member.task, member.limit) for member in members}
    found = [
        Planned(point.name, task.name, task.limit)
        for task in recipe.tasks
        for point in recipe.expanded()
        if ("accuracy", point.name, task.name, task.limit) not in known
    ]
    found += [
        Planned(None, timing.task, timing.prompts)
        for timing in recipe.timing
        if ("timing", timing.name, timing.task, timing.prompts) not in known
    ]
    return found
