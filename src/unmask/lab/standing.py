"""Which run stands for each configuration: of those that are equal by construction one is executed, one is a twin.

A configuration that has a result of its own keeps it, and what stood for others goes on standing for them, so results
stay where they are when a recipe is edited or only a part of it is run. A twin answers a few rows as itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from unmask.analysis.equality import equal_everywhere, equal_groups, equal_timings, meaning
from unmask.errors import UnmaskError
from unmask.spec.conduct import UntilDecidedSpec
from unmask.spec.lock import Lock, Outline
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store.experiments import Experiment, Instead
from unmask.store.run_folder import RESULT, RunFolder
from unmask.store.store import Store, folder_name, run_id


@dataclass(frozen=True, slots=True)
class Standing:
    """The runs that stand for others, by the ids of the runs that these would have."""

    runs: Mapping[str, PlannedRun]

    def executed(self, run: PlannedRun) -> PlannedRun:
        """The run whose result is that of a planned one: itself, or the one that stands for it."""
        return self.runs.get(run_id(run.identity), run)

    def instead(self, run: PlannedRun) -> Instead | msgspec.UnsetType:
        """What a record says of a configuration that another one's run stands for."""
        stand_in = self.executed(run)
        if stand_in is run or run.kind != "accuracy" or run_id(stand_in.identity) == run_id(run.identity):
            return msgspec.UNSET
        return Instead(
            configuration=stand_in.configuration,
            policy=run.identity["policy"],
            decode=run.identity["decode"],
        )

    def folders(self, runs: Sequence[PlannedRun]) -> dict[str, str]:
        """The names of the folders of accuracy runs, by configuration; all are of one task."""
        return {
            run.configuration: folder_name(self.executed(run).identity)
            for run in runs
            if run.kind == "accuracy"
        }


EVERY_RUN = Standing({})
"""Every run stands for itself."""


def standing_of(
    recipe: Recipe,
    lock: Lock,
    store: Store,
    chosen: Sequence[PlannedRun],
    limit: int | None,
    before: Experiment | None,
) -> Standing:
    """Which of the chosen runs, and of the recipe's others, stand for which."""
    every, wanted = sweep_of(recipe, lock, limit=limit), {run_id(run.identity) for run in chosen}
    stands: dict[str, PlannedRun] = {}
    for group in equal_groups(every, recipe, lock):
        # The control first, then what was asked for.
        order = sorted(group, key=lambda run: run_id(run.identity) not in wanted)
        order.sort(key=lambda run: run.configuration != recipe.control or run_id(run.identity) not in wanted)
        stand_in = _stand_in(order, lock, store, None if isinstance(lock, Outline) else before)
        for run in group:
            if run is not stand_in and not _has_result(store.find(run.identity)):
                stands[run_id(run.identity)] = stand_in
    for run in every:
        own = store.find(run.identity)
        if run.kind == "timing" and not (_has_result(own) or own.attempts()):
            stands[run_id(run.identity)] = _shortened(run, recipe, lock)
    return Standing(stands)


def _stand_in(group: Sequence[PlannedRun], lock: Lock, store: Store, before: Experiment | None) -> PlannedRun:
    """The run that stands for a group: the one that did, or has a result, or was begun, or simply the first."""
    for run in _earlier(group, lock, store, before):
        return run
    valid = [run for run in group if store.find(run.identity).retraction() is None]
    done = [run for run in valid if _has_result(store.find(run.identity))]
    begun = [run for run in valid if store.find(run.identity).attempts()]
    return [*done, *begun, *valid, *group][0]


def _earlier(
    group: Sequence[PlannedRun], lock: Lock, store: Store, before: Experiment | None
) -> Iterator[PlannedRun]:
    """The run that stood for some of these, also where its own configuration has left the recipe since."""
    places = {(run.kind, run.configuration, run.task, run.limit): run for run in group}
    for member in before.members if before else ():
        run, folder = places.get(member.place), RunFolder(store.runs_folder / member.folder)
        if run is None or not member.instead or not (_has_result(folder) or folder.attempts()):
            continue
        locked = lock.with_weights(run.identity["weights"])
        try:
            same = locked is not None and meaning(folder.identity, locked) == meaning(run.identity, locked)
        except (UnmaskError, KeyError, TypeError, AttributeError, ValueError):
            same = False  # it is of another version, or damaged
        if same:
            known = (each for each in group if run_id(each.identity) == member.id)
            old = replace(run, configuration=member.instead.configuration, identity=folder.identity)
            yield next(known, old)


def _has_result(run: RunFolder) -> bool:
    return (run.folder / RESULT).exists()


def _shortened(run: PlannedRun, recipe: Recipe, lock: Lock) -> PlannedRun:
    """A timing run with one configuration of each group, and one twin, which shows the noise of the clock."""
    control, settings = run.identity["control"], run.identity["configurations"]
    groups = [sorted(group, key=lambda name: name != control) for group in equal_timings(run, recipe, lock)]
    groups.sort(key=lambda group: control not in group)
    twin = next((group[1] for group in groups if len(group) > 1), None)
    kept = {group[0] for group in groups} | {twin}
    left = {name: value for name, value in settings.items() if name in kept}
    return replace(run, identity={**run.identity, "configurations": left})


def timed_as(run: PlannedRun, recipe: Recipe, lock: Lock, timed: Mapping[str, object]) -> dict[str, str]:
    """By configuration that a timing run leaves out: the one that it times instead."""
    groups = equal_timings(run, recipe, lock)
    first = {
        name: next((each for each in group if each in timed), name) for group in groups for name in group
    }
    return {name: instead for name, instead in first.items() if name not in timed}


def twins_of(
    runs: Sequence[PlannedRun], standing: Standing, recipe: Recipe, lock: Lock, store: Store
) -> list[tuple[PlannedRun, RunFolder]]:
    """One twin for every run that stands for others of these, with its folder.

    One that was begun before, or one that decodes otherwise where that matters to a task: it shows most.
    """
    seed = (recipe.until_decided or UntilDecidedSpec()).seed
    alike = {name: group for group in equal_everywhere(recipe, recipe.expanded(), lock) for name in group}
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        if standing.instead(run):
            groups.setdefault(run_id(standing.executed(run).identity), []).append(run)
    twins = []
    for group in groups.values():
        stand_in = standing.executed(group[0])
        of, same = store.find(stand_in.identity), alike.get(stand_in.configuration, [])
        group.sort(key=lambda run: run.configuration in same)
        places = [(twin, store.find(twin.identity, of)) for twin in (run.twin(seed) for run in group)]
        begun = [(twin, folder) for twin, folder in places if folder.folder.exists()]
        twins.append((begun or places)[0])
    return twins
