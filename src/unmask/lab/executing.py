"""Executes what a recipe still lacks, on this machine or through SLURM, and tells what happens as events.

`run` blocks until everything is over; `running` hands out the events. Either can be left at any time: workers are
stopped, what they answered is kept, and the same call goes on from there.
"""

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import msgspec

from unmask.analysis.words import counted
from unmask.errors import UnmaskError
from unmask.lab.jobs import slurm_folder
from unmask.lab.planning import (
    Plan,
    Selection,
    SweepRun,
    looked_up,
    once,
    plan,
    still_to_do,
    sweep_runs,
    unknown_jobs,
)
from unmask.lab.recipes import Message
from unmask.lab.records import freeze, write_down
from unmask.launch import Ended, Skipped, Started, Tick, WorkerCommand, find_slots, local_pool
from unmask.launch.slurm import note_on_dtype, submit
from unmask.spec.sweep import PlannedRun
from unmask.store.experiments import AnnouncedJobs, submitting
from unmask.store.index import IndexRecord, listing
from unmask.store.run_folder import RunFolder
from unmask.store.state import state_of
from unmask.store.store import Store

if TYPE_CHECKING:
    from unmask.analysis.forecast import Forecast

QUEUE_PAUSE = 5.0
"""Seconds between two looks at a queue that is waited for."""
UNDER_WAY = ("pending", "running", "unknown")
"""States of runs that a queue may still work on."""
Place = Literal["local", "slurm"]


@dataclass(frozen=True, slots=True)
class PoolOpened:
    """Workers of this machine are about to start."""

    runs: int
    """Runs to execute."""
    slots: tuple[str, ...]
    """Names of the worker slots."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Runs in a queue are waited for."""

    runs: tuple[SweepRun, ...]
    """The runs that wait."""


SweepEvent = Message | PoolOpened | Started | Ended | Skipped | Tick | Waiting
Events = Generator[SweepEvent, None, None]


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep has come to."""

    experiment: str
    """The name of the experiment."""
    store: Store
    """Where results are."""
    runs: tuple[SweepRun, ...]
    """All runs that were asked for, as they stand at the end."""
    twins: tuple[SweepRun, ...]
    """Those of runs that stand for others."""
    started: tuple[str, ...]
    """Ids of the runs that had to be executed."""
    records: dict[str, IndexRecord]
    """Extracts of all results in the store, by the name of the run's folder."""
    forecast: "Forecast | None"
    """What was expected to take how long, where it was known."""
    submitted: bool = False
    """Whether the runs were handed to SLURM, where they may still wait."""
    worker_seconds: dict[str, float] = field(default_factory=dict)
    """How long the workers of this machine lived, their start included, by the id of the run they completed."""
    elapsed: float = 0.0
    """Seconds from the first worker's start to the last one's end, without those of a canary."""

    @property
    def lacking(self) -> list[SweepRun]:
        """Runs that failed, and runs that were started here and have no result."""
        cut_off = () if self.submitted else ("interrupted", "missing")
        return [
            run
            for run in once((*self.runs, *self.twins))
            if run.status == "failed" or (run.id in self.started and run.status in cut_off)
        ]

    @property
    def unknown(self) -> list[SweepRun]:
        """Runs that were left alone because SLURM does not answer for their jobs."""
        runs = once((*self.runs, *self.twins))
        return [run for run in runs if run.status == "unknown" and run.id not in self.started]

    def record(self, run: SweepRun) -> IndexRecord | None:
        """The extract of a run's result, retracted ones left out."""
        record = self.records.get(run.folder.name)
        return record if record is not None and record.retraction is None else None

    def table(self) -> list[dict[str, str]]:
        """A row for each accuracy run: the brief columns of the report's table, and the run's state.

        A run without a result, or with a retracted one, has a state only.
        """
        from unmask.lab.outcomes import result_rows

        accuracy = [run for run in self.runs if run.planned.kind == "accuracy"]
        planned = [
            (run.planned.task, run.planned.limit, run.planned.configuration, run.status) for run in accuracy
        ]
        return result_rows(self.store, self.experiment, planned)

    def table_note(self) -> str:
        """At which level the intervals of the table hold; empty without intervals."""
        from unmask.lab.outcomes import levels_of

        return levels_of(self.store, self.experiment)

    def predicted_and_actual(self) -> tuple[float, float] | None:
        """Seconds forecast of the runs that were executed whole now, and those that their workers took; or None."""
        predicted = self.forecast.seconds if self.forecast else {}
        resumed = {record.id for record in self.records.values() if record.answers.resumed}
        whole = (predicted.keys() & self.worker_seconds.keys()) - resumed
        if not whole:
            return None
        return sum(predicted[run] for run in whole), sum(self.worker_seconds[run] for run in whole)


def run(
    recipe: str | Path,
    *,
    on: Place = "local",
    slots: int | None = None,
    canary: int | None = None,
    on_event: Callable[[SweepEvent], None] | None = None,
    **selection: Unpack[Selection],
) -> SweepOutcome:
    """Execute the runs of a recipe that have no result yet, and wait for them; on SLURM they are only submitted.

    `selection` is what `lab.plan` takes: tasks, configurations, limit, store, force, retry_failed, assume_gone. With
    `canary=N` N rows of a few configurations come first, and the rest starts only if the guards find nothing
    invalid. Runs whose jobs SLURM does not answer for are left alone unless `assume_gone` is set.

    A KeyboardInterrupt stops the workers and leaves a store that the same call goes on from.

        >>> done = lab.run("recipes/05_mine", slots=2, canary=10, on_event=show)      # doctest: +SKIP
        >>> [(run.label, run.status) for run in done.runs]                            # doctest: +SKIP
    """
    tell = on_event or (lambda _event: None)
    execution = _Execution(plan(recipe, on_event=tell, **selection), on, slots, canary)
    with closing(execution.events()) as events:
        for event in events:
            tell(event)
    return execution.outcome()


@contextmanager
def running(
    recipe: str | Path,
    *,
    on: Place = "local",
    slots: int | None = None,
    canary: int | None = None,
    **selection: Unpack[Selection],
) -> Iterator[Iterator[SweepEvent]]:
    """The same as `run`, as an iterator over its events; leaving the block stops the workers.

    >>> with lab.running("recipes/05_mine") as events:        # doctest: +SKIP
    ...     for event in events:
    ...         show(event)
    """
    notes: list[SweepEvent] = []
    execution = _Execution(plan(recipe, on_event=notes.append, **selection), on, slots, canary)
    with closing(_after(notes, execution.events())) as events:
        yield events


def _after(notes: Sequence[SweepEvent], events: Events) -> Events:
    yield from notes
    yield from events


class _Execution:
    """One call: its plan, where it runs, and what it forecast."""

    def __init__(self, plan: Plan, on: Place, slots: int | None, canary: int | None) -> None:
        if on not in ("local", "slurm"):
            raise UnmaskError(f"A sweep runs on `local` or `slurm`, not on {on!r}.")
        if not plan.locked:
            plan.opened.lock()  # says what is missing
        self._plan, self._on, self._slots, self._canary = plan, on, slots, canary
        self._forecast: Forecast | None = None
        self._worker_seconds: dict[str, float] = {}
        self._elapsed = 0.0

    def events(self) -> Events:
        """Everything from the canary to the last run."""
        if self._on == "slurm" and (self._plan.to_do or self._canary is not None):
            yield from map(Message, filter(None, [note_on_dtype(self._plan.opened.recipe)]))
        if self._canary is not None:
            yield from self._try_canary(self._canary)
            self._plan = self._plan.again()
        changed = self._plan.changed
        # A recipe whose name belongs to another one is refused here, before anything is said or set aside.
        write_down(self._plan)
        if self._plan.unknown:
            yield Message(self._plan.unknown)
        yield from map(Message, changed)
        if self._on == "slurm":
            yield from self._told(self._submit_all)
            return
        # Results that are about to be set aside, or to be added, must not change what is predicted.
        self._forecast = self._plan.forecast
        if self._plan.force is not None:
            # Somebody else may have begun one of them since the plan was made, which is refused.
            self._plan = self._plan.again()
        self._prepare()
        if self._plan.to_do:
            yield from self._timed(self._run_here(self._plan.to_do))

    def _timed(self, events: Events) -> Events:
        """The same events, with a look at the clock: what a forecast is compared with at the end."""
        start = time.monotonic()
        for event in events:
            if isinstance(event, Ended) and event.done:
                self._worker_seconds[event.command.run] = event.seconds
            self._elapsed = time.monotonic() - start
            yield event

    def _prepare(self) -> None:
        """Put earlier results out of the way of what is about to start."""
        for each in self._plan.to_do:
            if self._plan.force is not None and each.folder.folder.exists():
                each.folder.set_aside()
            each.folder.put_damaged_away()

    def outcome(self) -> SweepOutcome:
        """What there is now."""
        store, jobs = self._plan.store, self._plan.jobs()
        return SweepOutcome(
            self._plan.experiment,
            store,
            tuple(looked_up(self._plan.runs, jobs)),
            tuple(looked_up(self._plan.twins, jobs)),
            tuple(each.id for each in self._plan.to_do),
            listing(store).records,
            self._forecast,
            self._on == "slurm" and bool(self._plan.to_do),
            self._worker_seconds,
            self._elapsed,
        )

    def _try_canary(self, rows: int) -> Events:
        """Run the canary and refuse to go on if a guard finds anything invalid."""
        # The guards bring statistics along, which a sweep alone does not need.
        from unmask.lab.canary import canary_runs, judge

        store, opened = self._plan.store, self._plan.opened
        small, sentence = canary_runs(self._plan, rows)
        yield Message(sentence)
        runs = sweep_runs(store, small, self._plan.jobs())
        if refusal := unknown_jobs(runs):
            raise UnmaskError(refusal)
        freeze(store, opened, runs)
        if self._on == "slurm":
            yield from self._told(partial(self._submit_canary, small))
        elif to_do := still_to_do(runs, retry_failed=True):
            yield from self._run_here(to_do)
        yield from self._wait_for(runs)
        yield from map(Message, judge(opened.recipe, sweep_runs(store, small, self._plan.jobs())))

    def _run_here(self, runs: Sequence[SweepRun]) -> Events:
        """Execute runs on this machine, timing runs last and alone; one that fails does not stop the others."""
        places = find_slots(self._slots)
        yield PoolOpened(len(runs), tuple(place.name for place in places))
        timed = [_staying(each) for each in runs if each.planned.kind == "timing"]
        others = [_staying(each) for each in runs if each.planned.kind != "timing"]
        for commands, where in ((others, places), (timed, places[:1])):
            with local_pool(commands, where, held=_is_held) as events:
                yield from events

    def _told(self, submitting_runs: Callable[[list[str]], None]) -> Events:
        """Do this while nobody else submits; then say what was submitted, and why the rest was refused."""
        sentences: list[str] = []
        refusal: UnmaskError | None = None
        try:
            with submitting(self._plan.store):
                submitting_runs(sentences)
        except UnmaskError as error:
            refusal = error
        yield from map(Message, sentences)
        if refusal is not None:
            raise refusal

    def _submit_all(self, sentences: list[str]) -> None:
        if self._plan.to_do:
            # Somebody else may have submitted some of them since the plan was made.
            self._plan = self._plan.again()
        self._prepare()
        self._submit(self._plan.to_do, sentences)

    def _submit_canary(self, planned: Sequence[PlannedRun], sentences: list[str]) -> None:
        runs = sweep_runs(self._plan.store, planned, self._plan.jobs())
        self._submit(still_to_do(runs, retry_failed=True), sentences)

    def _submit(self, runs: Sequence[SweepRun], sentences: list[str]) -> None:
        """Submit runs as arrays; each is on record before sbatch is called, and its id before the next one is tried."""
        store, name = self._plan.store, self._plan.experiment
        announced: list[AnnouncedJobs] = []

        def announce(commands: Sequence[WorkerCommand]) -> str:
            announced.append(AnnouncedJobs.announce(store, name, [command.run for command in commands]))
            return announced[-1].job_name

        resources = msgspec.to_builtins(self._plan.opened.recipe.resources)
        commands = [_staying(each) for each in runs]
        for array in submit(commands, slurm_folder(store, name), resources, announce) if runs else ():
            announced[-1].confirm(each.job_id for each in array)
            job = array[0].job_id.split("_")[0]
            sentences.append(f"{counted(len(array), 'run')} submitted as job {job}.")

    def _wait_for(self, runs: Sequence[SweepRun]) -> Events:
        """Wait until none of these runs waits or is under way any more."""
        silent = False
        while True:
            now = looked_up(runs, self._plan.jobs())
            if (sentence := unknown_jobs(now)) and not silent:
                yield Message(f"{sentence} Until it answers, the canary waits.")
            silent = sentence is not None
            if not any(each.status in UNDER_WAY for each in now):
                return
            yield Waiting(tuple(now))
            time.sleep(QUEUE_PAUSE)


def _staying(run: SweepRun) -> WorkerCommand:
    """The worker of an accuracy run, which goes on with other runs that load and allow what this one does.

    A timing run gets a fresh worker, whose memory nothing else has touched.
    """
    identity, settings, command = run.executed.identity, run.folder.worker, run.command
    if run.planned.kind == "timing":
        return command
    loads = [identity["weights"], identity["dtype"], identity["mask_token_id"]]
    where = [settings.lock, settings.checkpoint, settings.data, settings.device]
    allows = [settings.allow_code, bool(settings.allow_unsafe_code)]
    group = json.dumps([loads, where, allows])
    return replace(command, group=group, argv=(*command.argv, "--stay"))


def _is_held(job: WorkerCommand) -> bool:
    """Whether another runner's worker is at it."""
    return state_of(RunFolder(job.folder)).status == "running"
