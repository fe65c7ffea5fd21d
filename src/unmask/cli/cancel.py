"""`unmask cancel`: stops runs, whether they wait in a queue or are under way."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import click
import psutil

from unmask.cli.queue import job_words, submitted
from unmask.cli.sweep_options import store_option
from unmask.errors import UnmaskError
from unmask.launch.queue_state import cancel as cancel_jobs
from unmask.store.experiments import experiment_names, read_experiment
from unmask.store.process import lives
from unmask.store.run_folder import RunFolder
from unmask.store.state import state_of
from unmask.store.store import Store


@click.command(short_help="Stop runs.")
@click.argument("names", nargs=-1, required=True, metavar="EXPERIMENT_OR_RUN...")
@store_option
def cancel(names: tuple[str, ...], store: Path | None) -> None:
    """Stop the runs of experiments, or single runs, that wait or are under way; what they answered is kept.

    On this machine the sweep that started a worker is stopped with it, as by Ctrl-C.

    \b
    Examples:
      unmask cancel 00_baseline
      unmask cancel f91f72e0
    """
    place = Store.at(store)
    runs = {run.id: run for name in names for run in _runs(place, name)}
    jobs, words = submitted(place), job_words(place)
    queued = [jobs[run] for run in runs if run in jobs and run in words]
    if queued:
        cancel_jobs(queued)
    stopped = [run for run in runs.values() if run.id not in words and _stop(run)]
    click.echo(f"{len(queued)} jobs cancelled, {len(stopped)} workers on this machine stopped.")


def _runs(store: Store, name: str) -> list[RunFolder]:
    if name in experiment_names(store):
        experiment = read_experiment(store, name)
        members = experiment.members if experiment else ()
        return [RunFolder(store.runs_folder / member.folder) for member in members]
    return [store.open(name)]


def _stop(run: RunFolder) -> bool:
    """Ask the newest living worker of this machine to end."""
    if state_of(run).status != "running":
        return False
    for attempt in reversed(run.attempts()):
        record = attempt.record()
        if record.pid is not None and lives(record):
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
