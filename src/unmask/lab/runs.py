"""Looks after the runs of a store: where they stand, their logs, stopping, retracting and deleting them.

Knows run folders, the processes of this machine, and what SLURM says of submitted runs. Free of statistics, so that
`status` answers at once.
"""

import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from unmask.errors import UnmaskError
from unmask.lab.jobs import all_jobs, output_of_dead_job, submitted_jobs
from unmask.lab.names import find_run
from unmask.launch.local import LOG
from unmask.launch.queue_state import cancel as cancel_jobs
from unmask.spec.sweep import differences, revision_change
from unmask.store.experiments import (
    Experiment,
    Member,
    experiment_names,
    experiment_of,
    read_experiment,
)
from unmask.store.index import IndexRecord, listing
from unmask.store.process import lives
from unmask.store.run_folder import RunFolder
from unmask.store.state import Jobs, State, state_of, states
from unmask.store.store import Store
from unmask.store.twins import compared, name_of

MISSING = State("missing")
MOST_PARTS = 4
"""Parts of identities that one sentence names."""
StorePlace = str | Path | Store | None
"""A store, its folder, or None for UNMASK_STORE, or `results` where that is not set."""


def open_store(store: StorePlace) -> Store:
    """The store that is meant."""
    return store if isinstance(store, Store) else Store.at(store)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run of an experiment and where it stands."""

    member: Member
    """The configuration and task of the run."""
    state: State
    """Whether it is done, running, failed or something else."""
    metric: str | None = None
    """The name of the headline metric."""
    value: float | None = None
    """Of its result, where it has one that was not retracted."""
    note: str | None = None
    """Which run stands for it, and what its twin has shown."""


@dataclass(frozen=True, slots=True)
class ExperimentStatus:
    """Where the runs of an experiment stand."""

    experiment: str
    """Its name."""
    runs: tuple[RunStatus, ...]
    """The runs that its recipe stands for."""
    superseded: int
    """Runs that an earlier text of the recipe described; they are kept."""
    changed: tuple[str, ...] = ()
    """Sentences on runs whose earlier results, or whose present ones, are not what `unmask run` would compute now."""


def status(*experiments: str, store: StorePlace = None) -> list[ExperimentStatus]:
    """Where the runs of some experiments stand, or of all: computed from files and from what SLURM says.

    >>> [(each.experiment, [run.state.status for run in each.runs]) for each in lab.status()]  # doctest: +SKIP
    """
    place = open_store(store)
    chosen = [experiment_of(place, name) for name in experiments or experiment_names(place)]
    results = listing(place)
    jobs = submitted_jobs(place)
    standing = dict(states(place, jobs, known=results))
    return [
        ExperimentStatus(
            each.name,
            tuple(_run_status(place, member, jobs, standing, results.records) for member in each.members),
            len({member.id for member in each.superseded}),
            (*_outdated(each, results.records), *_anew_of(place, each, standing, results.records)),
        )
        for each in chosen
    ]


def _run_status(
    store: Store,
    member: Member,
    jobs: Jobs,
    standing: Mapping[str, State],
    records: Mapping[str, IndexRecord],
) -> RunStatus:
    state, record = standing.get(member.folder, MISSING), records.get(member.folder)
    note = f"the run of {member.instead.configuration}" if member.instead else _twins(store, member, jobs)
    if record is None or record.retraction is not None:
        return RunStatus(member, state, note=note)
    return RunStatus(member, state, record.metric, record.value, note)


def _twins(store: Store, member: Member, jobs: Jobs) -> str | None:
    """Where the twins of a run stand."""
    run = RunFolder(store.runs_folder / member.folder)
    notes = []
    for twin in run.twins():
        state, shown = state_of(twin, jobs), compared(run, twin)
        answers = shown.equal + shown.other if shown else 0
        if shown and shown.other:
            note = f"{shown.other} of {answers} answers differ"
        elif state.status in ("stopped", "done"):
            note = f"{answers} answers, all equal"
        else:
            note = f"{state.status} ({state.reason})" if state.reason else state.status
        notes.append(f"twin {name_of(twin)}: {note}")
    return "; ".join(notes) or None


def _outdated(experiment: Experiment, records: Mapping[str, IndexRecord]) -> list[str]:
    """Sentences on results of another version, which a new call would compute again."""
    present = [records[member.folder] for member in experiment.members if member.folder in records]
    tally = Counter(filter(None, (revision_change(record.identity) for record in present)))
    return [
        f"{_many(count, 'result is', 'results are')} of another version of Unmask ({change}); `unmask run` computes "
        "them again and keeps these."
        for change, count in tally.items()
    ]


def _anew_of(
    store: Store, experiment: Experiment, standing: Mapping[str, State], records: Mapping[str, IndexRecord]
) -> list[str]:
    kept = ("done", "retracted")
    lacking = [each for each in experiment.members if standing.get(each.folder, MISSING).status not in kept]
    return computed_anew(store, experiment, {each.place: each.folder for each in lacking}, records)


def computed_anew(
    store: Store,
    experiment: Experiment,
    runs: Mapping[tuple[str, str, str, int | None], str | Mapping[str, Any]],
    records: Mapping[str, IndexRecord],
) -> list[str]:
    """Sentences on runs without a result that had one before: how many, and which part of them differs.

    `runs` gives, by their place in the recipe, the identities of these runs or the names of their folders.
    """
    earlier: dict[Any, IndexRecord] = {}
    for member in (*experiment.superseded, *experiment.members):
        if member.place in runs and member.folder in records and member.folder != runs[member.place]:
            earlier[member.place] = records[member.folder]
    tally: Counter[str] = Counter()
    for place, record in earlier.items():
        with suppress(UnmaskError):  # a run whose run.json is damaged says so itself
            known = runs[place]
            now = RunFolder(store.runs_folder / known).identity if isinstance(known, str) else known
            tally[_listed(differences(record.identity, now))] += 1
    return [
        f"{_many(count, 'run has', 'runs have')} an earlier result that is kept and enters no table, because it "
        f"differs in: {parts}."
        for parts, count in tally.most_common()
        if parts
    ]


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - MOST_PARTS} more" if len(parts) > MOST_PARTS else ""
    return ", ".join(parts[:MOST_PARTS]) + more


def logs(run: str, *, attempt: int | None = None, store: StorePlace = None) -> Path:
    """The log of a run's newest attempt, or of the one with this number; a run goes by its id or by its configuration.

    Where a SLURM job ended before its worker began, it is the job's own output, which may hold secrets.

    >>> print(lab.logs("f91f72e0").read_text())               # doctest: +SKIP
    """
    place = open_store(store)
    folder = find_run(place, run)
    attempts = folder.attempts()
    if attempt is None and (output := output_of_dead_job(place, folder)) is not None:
        return output
    if attempt is not None:
        chosen = [each for each in attempts if int(each.number) == attempt]
        if not chosen:
            raise UnmaskError(f"{folder.name} has {len(attempts)} attempts, but no number {attempt}.")
        attempts = chosen
    files = [*(each.log for each in reversed(attempts)), folder.folder / LOG]
    for file in files:
        if file.exists():
            return file
    raise UnmaskError(f"{folder.name} has no log yet; `unmask status` says where it stands.")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How much was stopped."""

    jobs: int
    """Jobs of the cluster."""
    workers: int
    """Workers of this machine."""
    runs: int = 0
    """Runs whose workers, here or elsewhere, were asked to end them and to take the next one."""


def cancel(*names: str, store: StorePlace = None) -> Cancelled:
    """Stop the runs of experiments, or single runs, that wait or are under way; what they answered is kept.

    An experiment is stopped with its jobs and workers, and on this machine with the sweep that started them, as by
    Ctrl-C. Of a single run only this run is: its worker takes the next one.

        >>> lab.cancel("05_mine")                             # doctest: +SKIP
        Cancelled(jobs=12, workers=0, runs=0)
    """
    place = open_store(store)
    wholes = [name for name in names if name in experiment_names(place)]
    runs = {run.id: run for name in names for run in _runs_of(place, name)}
    kept = {run.id for name in wholes for run in _runs_of(place, name)}
    to_end = [run for run in runs if run not in kept and _ask(runs[run])]
    runs = {run: folder for run, folder in runs.items() if run not in to_end}
    jobs = {run: [job.id for job in several if job.word] for run, several in all_jobs(place).items()}
    queued = list(dict.fromkeys(job for run in runs for job in jobs.get(run, ())))
    if nameless := [job for job in queued if not job[0].isdecimal()]:
        raise UnmaskError(f"SLURM does not answer for the job named {nameless[0]}; cancel it when it does.")
    if queued:
        cancel_jobs(queued)
    stopped = [run for run in runs.values() if not jobs.get(run.id) and _stop(run)]
    return Cancelled(len(queued), len(stopped), len(to_end))


def _runs_of(store: Store, name: str) -> list[RunFolder]:
    experiment = read_experiment(store, name) if name in experiment_names(store) else None
    if experiment is None:
        return [find_run(store, name)]
    folders = dict.fromkeys(member.folder for member in experiment.members)
    runs = [RunFolder(store.runs_folder / folder) for folder in folders]
    return [*runs, *(twin for run in runs for twin in run.twins())]


def _ask(run: RunFolder) -> bool:
    """Ask the worker that holds a run to end it; False where none does."""
    if state_of(run).status != "running":
        return False
    for attempt in reversed(run.attempts()):
        if not attempt.is_over() and isinstance(attempt.record().worker, str):
            attempt.cancel()
            return True
    return False


def _stop(run: RunFolder) -> bool:
    """Ask the newest living worker of this machine to end."""
    if state_of(run).status != "running":
        return False
    for attempt in reversed(run.attempts()):
        record = attempt.record()
        if record.pid is not None and lives(record) and not attempt.is_over():
            _stop_worker(record.pid)
            return True
    raise UnmaskError(f"{run.name} runs on another machine ({attempt.record().host}); cancel it there.")


def _stop_worker(pid: int) -> None:
    """End a worker, and first the sweep that would go on with the next one."""
    parent = psutil.Process(pid).parent()
    with suppress(psutil.Error):
        if parent is not None and "unmask" in " ".join(parent.cmdline()) and "run" in parent.cmdline():
            parent.send_signal(signal.SIGINT)
            return
    os.kill(pid, signal.SIGTERM)


def retract(run: str, reason: str = "", *, undo: bool = False, store: StorePlace = None) -> Path:
    """Keep an invalid result out of every table from now on; it stays on record with the reason. `undo` takes it back;
    the retraction is kept under `previous` in the run's folder.

    >>> lab.retract("f91f72e0", "the GPU was shared with another job")    # doctest: +SKIP
    >>> lab.retract("f91f72e0", undo=True)    # doctest: +SKIP
    """
    folder = find_run(open_store(store), run)
    if undo:
        folder.take_back_retraction()
    else:
        folder.retract(reason)
    return folder.folder


def removable(runs: Sequence[str], store: StorePlace = None, *, assume_gone: bool = False) -> list[RunFolder]:
    """The folders of runs that may be deleted; one that is under way, or may be, is refused."""
    place = open_store(store)
    folders = [find_run(place, run) for run in runs]
    jobs = {} if assume_gone else submitted_jobs(place)
    for folder in folders:
        for each in (folder, *folder.twins()):
            _check_idle(each, jobs)
    return folders


def _check_idle(run: RunFolder, jobs: Jobs) -> None:
    state = state_of(run, jobs)
    if state.status in ("running", "pending"):
        raise UnmaskError(f"{run.name} is {state.status}; stop it with `unmask cancel {run.id}` first.")
    if state.status == "unknown":
        raise UnmaskError(
            f"SLURM does not answer for job {state.job} of {run.name}; try later, or use --assume-gone if "
            "you know that it is not left."
        )


def remove(*runs: str, store: StorePlace = None, assume_gone: bool = False) -> list[Path]:
    """Delete runs with everything in them; gives the folders that are gone. To keep a result on record, retract it.

    Runs whose jobs SLURM does not answer for are refused unless `assume_gone` is set.

    >>> lab.remove("f91f72e0", "4c0af06c")                    # doctest: +SKIP
    """
    folders = removable(runs, store, assume_gone=assume_gone)
    for folder in folders:
        folder.remove()
    return [folder.folder for folder in folders]
