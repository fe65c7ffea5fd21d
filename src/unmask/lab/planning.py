"""What a recipe would run: every run with its state, what is to do, what it can show and how long it may take.

`plan` writes nothing but a missing lock. Before runs start, `write_down` freezes them and their experiment.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from unmask.analysis.words import counted, join_words
from unmask.errors import UnmaskError
from unmask.lab.jobs import submitted_jobs
from unmask.lab.recipes import Notify, OpenRecipe, open_recipe
from unmask.lab.runs import StorePlace, computed_anew, open_store
from unmask.lab.standing import EVERY_RUN, Standing, standing_of, twins_of
from unmask.launch import WorkerCommand
from unmask.spec.lock import Lock, Outline
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, rows_asked, sweep_of
from unmask.store.experiments import read_experiment
from unmask.store.index import listing
from unmask.store.run_folder import RunFolder, Terms
from unmask.store.state import UNKNOWN, Jobs, State, state_of
from unmask.store.store import Store, run_id

if TYPE_CHECKING:
    from unmask.analysis.ceilings import Outlook
    from unmask.analysis.forecast import Forecast
    from unmask.analysis.step_counts import StepCounts
    from unmask.lab.stopping import Decision


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A planned run, its folder in the store, and where it stands."""

    planned: PlannedRun
    """What it is: configuration, task, identity."""
    folder: RunFolder
    """Where it is in the store: its own folder, or that of the run that stands for it."""
    state: State
    """Whether it is done, missing, failed or something else."""
    executed: PlannedRun
    """What is executed for it: itself, or the run that stands for it."""

    @property
    def is_twin(self) -> bool:
        """Whether it answers a few rows only, in the folder of the run that stands for it."""
        return self.planned.kind == "twin"

    @property
    def stands_for_itself(self) -> bool:
        """Whether it is executed, and not another one in its place."""
        return self.executed is self.planned

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.id

    @property
    def label(self) -> str:
        """What people call it: task and configuration."""
        return self.planned.label

    @property
    def place(self) -> tuple[str, str, str, int | None]:
        """What the run is in its recipe, whatever its identity."""
        planned = self.planned
        return planned.kind, planned.configuration, planned.task, planned.limit

    @property
    def status(self) -> str:
        """Where it stands, in one word."""
        return self.state.status

    @property
    def command(self) -> WorkerCommand:
        """The worker that would execute it."""
        place = self.folder.folder.resolve()
        return WorkerCommand(
            self.id, place, self.executed.label, (sys.executable, "-m", "unmask", "run-one", str(place))
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a sweep answers."""

    runs: int
    """Accuracy runs that are executed."""
    twins: int
    """Twins, which answer a few rows each."""
    rows: int
    """Rows of all of them."""


@dataclass(frozen=True)
class Plan:
    """The runs of a recipe and what is known of them before anything starts."""

    opened: OpenRecipe
    """The recipe with its lock."""
    lock: Lock
    """Hashes of what the recipe depends on."""
    store: Store
    """Where results are."""
    runs: tuple[SweepRun, ...]
    """All runs of the recipe."""
    to_do: tuple[SweepRun, ...]
    """Each run once, also where two configurations of the recipe are the same run; twins too."""
    twins: tuple[SweepRun, ...] = ()
    """They answer a few rows as configurations that another one's run stands for."""
    standing: Standing = EVERY_RUN
    """Which run stands for which configurations."""
    force: tuple[str, ...] | None = None
    """Configurations (patterns) whose present results are to be set aside; None where nothing is forced."""
    retry_failed: bool = False
    """Whether failed runs are to be executed again."""
    assume_gone: bool = False
    """Whether jobs that SLURM does not answer for count as ended."""
    terms: Terms | None = None
    """By what runs may end before their last row; None where every run goes to its end."""
    device: str | None = None
    """The device whose roofline the ceilings are taken from; None takes the recipe's kind of device."""
    traces: Mapping[str, str | Path] = field(default_factory=dict)
    """By configuration: traces of `unmask probe` with its decode settings, by whose steps these are priced."""

    @property
    def experiment(self) -> str:
        """The recipe's name."""
        return self.opened.recipe.name

    @property
    def locked(self) -> bool:
        """Whether there is a lock; without one, runs have neither ids nor states, and nothing can be executed."""
        return not isinstance(self.lock, Outline)

    @cached_property
    def outlook(self) -> "Outlook":
        """Ceilings, what cannot act or differ, and samples needed."""
        from unmask.analysis.ceilings import outlook
        from unmask.analysis.forecast import steps_taken

        recipe, planned = self.opened.recipe, [run.planned for run in self.runs]
        known = steps_taken(recipe, self.lock, planned, self.store) | self._steps_of_traces()
        return outlook(recipe, self.lock, self.device, known)

    def _steps_of_traces(self) -> "dict[str, StepCounts]":
        """A trace speaks for every configuration with the decode settings of the one that it is given for."""
        from unmask.analysis.step_counts import StepCounts
        from unmask.policies.calibration import recorded_steps

        recipe = self.opened.recipe
        settings = {each.name: recipe.decode_of(each) for each in recipe.expanded()}
        counts: dict[str, StepCounts] = {}
        for configuration, file in self.traces.items():
            if configuration not in settings:
                raise UnmaskError(
                    f"A trace is given for {configuration}, which is no configuration; there are {', '.join(settings)}."
                )
            steps = StepCounts(*recorded_steps(Path(file)), f"the trace {file}")
            counts |= {name: steps for name in settings if settings[name] == settings[configuration]}
        return counts

    @cached_property
    def decisions(self) -> "tuple[Decision, ...]":
        """How likely and how soon candidates are decided; empty where every run goes to its end."""
        success = self.opened.recipe.success
        runs = [run for run in self.runs if success and run.planned.task == success.task]
        rows = [self.rows(run) for run in runs if run.planned.kind == "accuracy"]
        if self.terms is None or not rows:
            return ()
        from unmask.lab.stopping import decisions_of

        return decisions_of(self.terms, rows[0])

    @cached_property
    def forecast(self) -> "Forecast | None":
        """Seconds of the runs to do, by earlier runs; None where nothing comparable was run."""
        from unmask.analysis.forecast import forecast

        planned = [run.executed for run in self.to_do]
        return forecast(self.opened.recipe, self.lock, planned, self.store)

    @property
    def unknown(self) -> str | None:
        """A sentence on the runs that are left alone because SLURM does not answer for their jobs."""
        return unknown_jobs((*self.runs, *self.twins))

    @property
    def changed(self) -> list[str]:
        """Sentences on runs to do that had a result before something in their identities changed, or were stopped."""
        return [*self._forced_for_others(), *self._terms_changed(), *self._identities_changed()]

    def _forced_for_others(self) -> Iterator[str]:
        """That a run which is executed again stands for configurations that were not named."""
        patterns = self.force or ()
        for run in self.to_do if self.force is not None else ():
            names = [each.planned.configuration for each in self.runs if each.id == run.id]
            others = [name for name in names if not any(fnmatchcase(name, each) for each in patterns)]
            if others and not run.is_twin:
                yield f"The run of {run.executed.label} is also that of {join_words(others)}."

    def _terms_changed(self) -> Iterator[str]:
        """That runs were stopped, or are under way, by another criterion than the recipe's present one."""
        terms = self.terms
        if terms is None:
            return
        again = [run.label for run in self.to_do if run.status == "stopped"]
        if again:
            yield f"{join_words(again)}: stopped before, but undecided by the present criterion; going on."
        judged = [run for run in once(self.runs) if run.folder.name in {terms.control, *terms.candidates}]
        under_way = [run for run in judged if run.status in ("running", "pending")]
        other = [run.label for run in under_way if run.folder.worker.until_decided != terms]
        if other:
            yield f"{join_words(other)}: under way, and judged by the present criterion from the next round on."

    def _identities_changed(self) -> list[str]:
        before = read_experiment(self.store, self.experiment) if self.locked else None
        missing = [run for run in self.to_do if run.status == "missing"]
        if before is None or not missing:
            return []
        places = {run.place: run.executed.identity for run in missing}
        return computed_anew(self.store, before, places, listing(self.store).records)

    @property
    def runs_with_twins(self) -> list[SweepRun]:
        """Every run once, and the twins."""
        return once((*self.runs, *self.twins))

    @property
    def cost(self) -> "tuple[Cost, Cost]":
        """Of the accuracy runs: if every configuration had its own, and as they are executed."""
        accuracy = [run for run in self.runs if run.planned.kind == "accuracy"]
        own = {run_id(run.planned.identity): run for run in accuracy}
        executed = once(accuracy)
        return (
            Cost(len(own), 0, sum(map(self.rows, own.values()))),
            Cost(len(executed), len(self.twins), sum(map(self.rows, (*executed, *self.twins)))),
        )

    def rows(self, run: SweepRun) -> int:
        """Rows that a run asks."""
        return rows_asked(run.planned, self.lock)

    def again(self) -> "Plan":
        """The same plan with the states of this moment."""
        jobs = self.jobs()
        runs, twins = looked_up(self.runs, jobs), looked_up(self.twins, jobs)
        if self.force is None:
            to_do = self._undecided(still_to_do((*runs, *twins), self.retry_failed))
        else:
            to_do = chosen_again(runs, self.force, twins)
        return replace(self, runs=tuple(runs), twins=tuple(twins), to_do=tuple(to_do))

    def _undecided(self, runs: Sequence[SweepRun]) -> list[SweepRun]:
        """Those of the runs whose fate is not certain, the control first: nothing is certain without its rows."""
        terms = self.terms
        if terms is None:
            return list(runs)
        from unmask.analysis.stopping import fate

        open_runs = [run for run in runs if run.status != "stopped" or fate(run.folder, terms) is None]
        return sorted(open_runs, key=lambda run: run.folder.name != terms.control)

    def jobs(self) -> Jobs:
        """The jobs of submitted runs as SLURM knows them at this moment."""
        jobs = submitted_jobs(self.store)
        if not self.assume_gone:
            return jobs
        return {run: replace(job, word="") if job.word == UNKNOWN else job for run, job in jobs.items()}


class Selection(TypedDict, total=False):
    """Which runs of a recipe are meant, and where they are kept: what `plan`, `run` and `running` take alike."""

    tasks: str | Iterable[str]
    """Names or patterns; all tasks without it."""
    configurations: str | Iterable[str]
    """Names or patterns; all configurations without it."""
    limit: int | None
    """Rows of each task instead of the recipe's."""
    store: StorePlace
    """A folder; without it UNMASK_STORE, or `results`."""
    force: str | Iterable[str] | None
    """Configurations (patterns, "*" for all) to execute again; their present results are set aside."""
    retry_failed: bool
    """Whether failed runs are to be executed again."""
    assume_gone: bool
    """Whether jobs that SLURM does not answer for count as ended; else their runs are left alone."""
    until_decided: bool | None
    """Whether runs end as soon as the recipe's criterion is certain of them; without it the recipe says so."""
    run_equal: bool
    """Whether configurations that are equal by construction are executed one and all."""


def plan(
    recipe: str | Path,
    *,
    device: str | None = None,
    traces: Mapping[str, str | Path] | None = None,
    on_event: Notify | None = None,
    **selection: Unpack[Selection],
) -> Plan:
    """The runs of a recipe with their states, what is to do, ceilings, samples needed, and a forecast.

    Nothing is written but a missing lock, and that only where nothing need be downloaded for it. Where it would have to
    be, the plan goes by the checkpoint's config.json, or what is known of a published one, and by published numbers of
    rows.

        >>> plan = lab.plan("recipes/05_mine", tasks=["gsm8k"], limit=50)     # doctest: +SKIP
        >>> [run.label for run in plan.to_do], plan.forecast, plan.outlook    # doctest: +SKIP
    """
    opened = open_recipe(recipe)
    store = open_store(selection.get("store"))
    lock = opened.present_lock() or (opened.outline() if opened.needs_network else None)
    lock = lock or opened.lock(on_event)
    limit = selection.get("limit")
    chosen = _names(selection.get("tasks", ())), _names(selection.get("configurations", ()))
    planned = sweep_of(opened.recipe, lock, *chosen, limit)
    force = None if selection.get("force") is None else _names(selection.get("force") or ())
    standing = EVERY_RUN
    if not selection.get("run_equal", False):
        before = read_experiment(store, opened.recipe.name)
        standing = standing_of(opened.recipe, lock, store, planned, limit, before)
    twins = [
        SweepRun(twin, folder, State("missing"), twin)
        for twin, folder in twins_of(planned, standing, opened.recipe, lock, store)
    ]
    retry_failed = selection.get("retry_failed", False)
    assume_gone = selection.get("assume_gone", False)
    wanted = selection.get("until_decided")
    stops = opened.recipe.until_decided is not None if wanted is None else wanted
    return Plan(
        opened,
        lock,
        store,
        tuple(sweep_runs(store, planned, {}, standing)),
        (),
        tuple(twins),
        standing,
        force,
        retry_failed,
        assume_gone,
        recipe_terms(opened.recipe, lock, store, limit, standing) if stops else None,
        device,
        traces or {},
    ).again()


def recipe_terms(recipe: Recipe, lock: Lock, store: Store, limit: int | None, standing: Standing) -> Terms:
    """By what the runs of a recipe are judged that may end before their last row."""
    # It brings statistics along, which other sweeps do not need.
    from unmask.lab.stopping import terms_of

    tasks = [recipe.success.task] if recipe.success else []
    return terms_of(recipe, lock, store, limit, standing.folders(sweep_of(recipe, lock, tasks, limit=limit)))


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    """A single name need not stand in a list."""
    return (names,) if isinstance(names, str) else tuple(names)


def sweep_runs(
    store: Store,
    planned: Iterable[PlannedRun],
    jobs: Jobs | None = None,
    standing: Standing = EVERY_RUN,
) -> list[SweepRun]:
    """Every planned run with its state."""
    executed = [(run, standing.executed(run)) for run in planned]
    runs = [SweepRun(run, store.find(own.identity), State("missing"), own) for run, own in executed]
    return looked_up(runs, jobs)


def looked_up(runs: Iterable[SweepRun], jobs: Jobs | None = None) -> list[SweepRun]:
    """The same runs with the states of this moment; a run that several names share is looked up once."""
    states: dict[Path, State] = {}
    for run in runs:
        if run.folder.folder not in states:
            states[run.folder.folder] = _state(run, jobs)
    return [replace(run, state=states[run.folder.folder]) for run in runs]


def _state(run: SweepRun, jobs: Jobs | None) -> State:
    state = state_of(run.folder, jobs)
    # A twin ends before its last row, and is done then.
    return replace(state, status="done") if run.is_twin and state.status == "stopped" else state


def still_to_do(runs: Iterable[SweepRun], retry_failed: bool = False) -> list[SweepRun]:
    """What is missing, was cut off or stopped early, and on request what has failed."""
    wanted = {"missing", "interrupted", "stopped", *(["failed"] if retry_failed else [])}
    return once(run for run in runs if run.status in wanted)


def chosen_again(
    runs: Sequence[SweepRun], names: Sequence[str], twins: Sequence[SweepRun] = ()
) -> list[SweepRun]:
    """The runs of the named configurations (patterns) and their twins, whatever their state.

    One that is under way is refused.
    """
    for name in names:
        if not any(fnmatchcase(run.planned.configuration, name) for run in runs):
            known = ", ".join(dict.fromkeys(run.planned.configuration for run in runs))
            raise UnmaskError(f"No configuration is called {name}; there are {known}.")
    chosen = once(run for run in runs if any(fnmatchcase(run.planned.configuration, name) for name in names))
    chosen += [
        twin for twin in twins if twin.folder.folder.parents[1] in {run.folder.folder for run in chosen}
    ]
    for run in chosen:
        if run.status in ("running", "pending"):
            raise UnmaskError(f"{run.label} is {run.status}; cancel it with `unmask cancel {run.id}` first.")
    if sentence := unknown_jobs(chosen):
        raise UnmaskError(sentence)
    return chosen


def unknown_jobs(runs: Iterable[SweepRun]) -> str | None:
    """A sentence on the runs of jobs that SLURM does not answer for, or None without such runs."""
    unknown = once(run for run in runs if run.status == "unknown")
    if not unknown:
        return None
    jobs = list(dict.fromkeys(str(run.state.job).split("_")[0] for run in unknown))
    are, names = (
        "is" if len(unknown) == 1 else "are",
        f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(jobs)}",
    )
    return (
        f"SLURM does not answer for {counted(len(unknown), 'submitted run')} ({names}), which {are} not started "
        "again; try later, or use --assume-gone if you know that no job is left."
    )


def once(runs: Iterable[SweepRun]) -> list[SweepRun]:
    """Two names for one and the same run are executed once."""
    by_id: dict[str, SweepRun] = {}
    for run in runs:
        if run.id not in by_id or (run.stands_for_itself and not by_id[run.id].stands_for_itself):
            by_id[run.id] = run
    return list(by_id.values())
