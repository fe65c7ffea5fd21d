"""The jobs of submitted runs: which there are, what SLURM says of them, and why one ended before its worker began.

Knows what was written down when runs were submitted, the queue, and the output of the jobs themselves. What a worker
has achieved is seen in the run's folder.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.launch import job_states
from unmask.launch.queue_state import jobs_named
from unmask.launch.slurm import last_words, output_of
from unmask.store.attempt import attempts_in
from unmask.store.experiments import names_with_jobs, read_jobs
from unmask.store.run_folder import RunFolder
from unmask.store.state import PENDING, RUNNING, UNKNOWN, SubmittedJob
from unmask.store.store import Store
from unmask.store.worker_file import runs_of_jobs

NO_WALL = {"BOOT_FAIL", "CANCELLED", "NODE_FAIL", "PREEMPTED", "REVOKED"}
"""Ends of jobs for which neither the recipe nor the environment is to blame."""
JOB = re.compile(r"\d+(_\d+)?")
STOPPED = re.compile(r"\*\*\* .* CANCELLED AT \S+ (?!DUE TO TIME LIMIT)")
"""What SLURM writes into the output of a job that it ends."""


@dataclass(frozen=True, slots=True)
class _RecordedJob:
    """A job on record."""

    experiment: str
    run: RunFolder
    job: str
    """Its id, or its name as long as the queue does not tell the id."""
    has_id: bool = True

    def output(self, store: Store) -> Path:
        return output_of(slurm_folder(store, self.experiment), self.job)


def slurm_folder(store: Store, experiment: str) -> Path:
    """Where the scripts and the outputs of an experiment's jobs are."""
    return (store.root / "experiments" / experiment / "slurm").resolve()


def submitted_jobs(store: Store) -> dict[str, SubmittedJob]:
    """The job of every unfinished run that was submitted, with SLURM's word for it; empty without submissions."""
    return {run: _liveliest(several) for run, several in all_jobs(store).items()}


def all_jobs(store: Store) -> dict[str, list[SubmittedJob]]:
    """All jobs on record of every unfinished run: a run that another run's worker has taken keeps its own one too."""
    runs = {run.id: run for run in (*store.runs(), *store.twins())} if names_with_jobs(store) else {}
    entries = [entry for entry in _entries(store, runs) if not (entry.run.folder / "result.json").exists()]
    entries += _jobs_of_workers(entries)
    holding = runs_of_jobs(store.root)
    queue = job_states(entry.job for entry in entries if entry.has_id)
    words = {job: "" if state.phase == "vanished" else state.state for job, state in queue.items()}
    jobs: dict[str, list[SubmittedJob]] = {}
    for entry in entries:
        word = words.get(entry.job, UNKNOWN)
        if word == UNKNOWN and _has_failed(entry):
            word = ""  # the end of this job is known from the run's own files, whatever SLURM says
        if word in RUNNING and holding.get(entry.job, entry.run.id) != entry.run.id:
            job = SubmittedJob(entry.job, "")  # it is at another run, and speaks for that one
        else:
            job = SubmittedJob(entry.job, word, _death(store, entry, word))
        jobs.setdefault(entry.run.id, []).append(job)
    return jobs


def _jobs_of_workers(entries: Sequence[_RecordedJob]) -> list[_RecordedJob]:
    """Jobs that were submitted for other runs, and whose workers have taken one of these."""
    found = []
    for run, experiment in {entry.run.id: (entry.run, entry.experiment) for entry in entries}.values():
        own = {entry.job for entry in entries if entry.run.id == run.id}
        for attempt in run.attempts()[-1:]:
            job = attempt.record().job
            if job is not None and JOB.fullmatch(job) and job not in own and not attempt.is_over():
                found.append(_RecordedJob(experiment, run, job))
    return found


def output_of_dead_job(store: Store, run: RunFolder) -> Path | None:
    """What the job of a run has printed, if it ended, or stands, before its worker began."""
    for entry in _entries(store, {run.id: run}):
        output = entry.output(store)
        if output.exists() and not _has_begun(entry, output):
            return output
    return None


def _entries(store: Store, runs: Mapping[str, RunFolder]) -> list[_RecordedJob]:
    """The newest job of these runs in each experiment that submitted them."""
    newest: list[tuple[str, Mapping[str, Any]]] = []
    for experiment in names_with_jobs(store):
        lines = (line for line in read_jobs(store, experiment) if str(line.get("run")) in runs)
        newest += [(experiment, line) for line in {str(line["run"]): line for line in lines}.values()]
    # Whoever submitted these was stopped before the job's id was on record.
    names = [str(line.get("name")) for _, line in newest if "job" not in line]
    ids = jobs_named(names) if names else {}
    return [
        entry for experiment, line in newest if (entry := _entry(experiment, line, runs, ids)) is not None
    ]


def _entry(
    experiment: str, line: Mapping[str, Any], runs: Mapping[str, RunFolder], ids: Mapping[str, str] | None
) -> _RecordedJob | None:
    """One line of a list of jobs; None if the queue knows no job of its name, which then was not submitted."""
    run, name = runs[str(line["run"])], str(line.get("name"))
    if "job" in line:
        return _RecordedJob(experiment, run, str(line["job"]))
    if ids is None:
        return _RecordedJob(experiment, run, name, has_id=False)
    if name not in ids:
        return None
    return _RecordedJob(experiment, run, f"{ids[name]}_{line['task']}" if "task" in line else ids[name])


def _has_failed(entry: _RecordedJob) -> bool:
    """Whether the newest attempt was this job's and has failed."""
    attempts = entry.run.attempts()
    return bool(attempts) and attempts[-1].failure() is not None and attempts[-1].record().job == entry.job


def _liveliest(jobs: Sequence[SubmittedJob]) -> SubmittedJob:
    """The one that may still work on the run, where two experiments have submitted it."""
    return max(jobs, key=lambda job: (job.word in RUNNING, job.word in PENDING, job.word == UNKNOWN))


def _death(store: Store, entry: _RecordedJob, word: str) -> str | None:
    """Why a job ended before its worker began; None if it did not, or if it was stopped from outside."""
    if word in RUNNING | PENDING | NO_WALL | {UNKNOWN}:
        return None
    if word == "COMPLETED" and entry.run.attempts():
        return None  # another job's worker was at the run when this one's turn came
    output = entry.output(store)
    forgotten_or_silent = not word and not output.exists()
    words = last_words(output)
    if forgotten_or_silent or _has_begun(entry, output) or (not word and STOPPED.search(words)):
        return None
    end = f" ({word})" if word else ""
    return f"job {entry.job} ended{end} before its worker began: {words or 'it printed nothing'}"


def _has_begun(entry: _RecordedJob, output: Path) -> bool:
    """Whether the job's worker has begun, or the run was begun anew or by somebody else since the job's last word."""
    folders = [entry.run.folder / "attempts", *entry.run.folder.glob("previous/*/attempts")]
    attempts = [attempt for folder in folders for attempt in attempts_in(folder)]
    if any(attempt.record().job == entry.job for attempt in attempts):
        return True
    since = [entry.run.folder / "run.json", *(attempt.folder / "attempt.json" for attempt in attempts)]
    return output.exists() and _last_change([output]) < _last_change(since)


def _last_change(files: Iterable[Path]) -> float:
    times = [0.0]
    for file in files:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times)
