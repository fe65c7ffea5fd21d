"""Tables of the experiments in a store: every configuration with its result, or that of the run that stands for it."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from unmask.analysis.stopping import sequential_of
from unmask.analysis.table import (
    AnalysedExperiment,
    ConfigurationResult,
    ConfigurationTiming,
    Own,
    Planned,
    StandIn,
    Table,
    entry_of,
    joined,
    timings_of,
)
from unmask.errors import UnmaskError
from unmask.spec.lock import Lock, read_lock
from unmask.spec.recipe import Recipe, parse_recipe
from unmask.store import RunFolder, Store
from unmask.store.experiments import Experiment, Member, experiment_names, experiment_of
from unmask.store.result import TimingResult
from unmask.store.traces import with_traces
from unmask.store.twins import twin_of


def own_table(store: Store, names: Iterable[str] | None = None) -> Table:
    """The results of some experiments, or of all; what is retracted, superseded or not published stays out."""
    wanted = experiment_names(store) if names is None else list(names)
    return joined(*(experiment_table(store, name) for name in wanted))


def experiment_table(store: Store, name: str) -> Table:
    """The results of one experiment."""
    planned = experiment_of(store, name)
    lock, recipe = _lock(planned), planned_recipe(planned)
    models, sequential = recipe.own_models() if recipe else {}, sequential_of(store, planned)
    entries: list[ConfigurationResult] = []
    timings: list[ConfigurationTiming] = []
    missing: dict[str, Planned] = {}
    retracted: dict[str, Planned] = {}
    for member in planned.members:
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result()
        if result is None:
            if not sequential or not sequential.has_stopped(member):
                _add_once(missing, member)
        elif run.retraction() is not None:
            _add_once(retracted, member)
        elif isinstance(result, TimingResult):
            timings += _with_those_left_out(timings_of(name, result, models, run.folder), member)
        else:
            locked = lock.with_weights(result.identity.get("weights")) if lock is not None else None
            shape = locked.shape if locked is not None else None
            model = models.get(member.configuration)
            entry = entry_of(name, member.configuration, result, run.folder, shape, model)
            entries.append(replace(entry, own=_own(store, member)) if member.instead else entry)
    never_started = _never_started(recipe, planned.members) if recipe else []
    experiment = AnalysedExperiment(
        name=name,
        control=planned.control,
        success=recipe.success if recipe else None,
        missing=(*missing.values(), *never_started),
        retracted=tuple(retracted.values()),
        sequential=sequential,
        stand_ins=tuple(_stand_ins(store, planned)),
    )
    return Table((experiment,), tuple(entries), tuple(timings))


def _add_once(planned: dict[str, Planned], member: Member) -> None:
    """A run that stands for several configurations is one run, under the name of its own if that is there."""
    if member.folder not in planned or not member.instead:
        planned[member.folder] = _planned(member)


def _own(store: Store, member: Member) -> Own:
    assert member.instead, "others are what was executed"
    policy = with_traces(store.root, member.instead.policy)
    return Own(member.instead.configuration, policy, member.instead.decode)


def _with_those_left_out(
    timings: Iterable[ConfigurationTiming], member: Member
) -> Iterable[ConfigurationTiming]:
    """The timings of a run, each with the configurations that it was timed for besides."""
    instead = (member.timed_as or {}).items()
    for timing in timings:
        yield replace(timing, also=tuple(name for name, timed in instead if timed == timing.configuration))


def _stand_ins(store: Store, planned: Experiment) -> Iterable[StandIn]:
    """Runs with the configurations that they stand for, and what a twin has shown."""
    others: dict[str, list[Member]] = {}
    for member in planned.members:
        if member.instead:
            others.setdefault(member.folder, []).append(member)
    for folder, members in others.items():
        first = members[0]
        assert first.instead, "chosen by it"
        names = tuple(member.configuration for member in members)
        twin = twin_of(RunFolder(store.runs_folder / folder))
        yield StandIn(first.instead.configuration, names, first.task, first.limit, twin)


def planned_recipe(planned: Experiment) -> Recipe | None:
    """The recipe as it was planned; None where this version no longer understands it."""
    try:
        return parse_recipe(planned.recipe_text, planned.recipe)
    except UnmaskError:
        return None


def _lock(planned: Experiment) -> Lock | None:
    """The lock beside the recipe, if it is still there: it knows the model's shape."""
    try:
        return read_lock(Path(planned.recipe).with_suffix(".lock"))
    except (UnmaskError, OSError):
        return None


def _planned(member: Member) -> Planned:
    return Planned(None if member.kind == "timing" else member.configuration, member.task, member.limit)


def _never_started(recipe: Recipe, members: Iterable[Member]) -> list[Planned]:
    """Runs of the recipe that were never planned; a run with another limit does not count as one of them."""
    known = {(member.kind, member.configuration, member.task, member.limit) for member in members}
    runs = [
        Planned(configuration.name, task.name, task.limit)
        for task in recipe.tasks
        for configuration in recipe.expanded()
        if ("accuracy", configuration.name, task.name, task.limit) not in known
    ]
    runs += [
        Planned(None, timing.task, timing.prompts)
        for timing in recipe.timing
        if ("timing", timing.name, timing.task, timing.prompts) not in known
    ]
    return runs
