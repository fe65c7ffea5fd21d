"""`unmask run-one`: what every worker starts as. Executes runs of a store and leaves everything in their folders.

A worker that stays keeps its model and takes the next run from whoever started it. It ends after a failure, after
memory ran out, and in front of a run that needs a fresh worker.
"""

import atexit
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from unmask.errors import UnmaskError
from unmask.launch.dialogue import FREE, HELD, UNFIT, Word, WorkerEnd
from unmask.launch.processes import LOG_SECONDS
from unmask.store.attempt import CANCEL_SIGNAL, Attempt
from unmask.store.environment import loaded_code
from unmask.store.files import open_to_append
from unmask.store.redaction import clean_copy
from unmask.store.run_folder import RunFolder
from unmask.store.state import holder
from unmask.store.stopping import stopped
from unmask.store.worker_file import WorkerFile

if TYPE_CHECKING:
    from unmask.evaluation.engines import LoadedEngines


@click.command(name="run-one")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--keep-output", is_flag=True, help="Print to the terminal instead of the attempt's log.")
@click.option(
    "--stay", is_flag=True, help="Keep the model, and take further runs from the program that started this."
)
def run_one(folder: Path, keep_output: bool, stay: bool) -> None:
    """Execute one run that `unmask run` has planned, going on from what earlier attempts have answered.

    \b
    Examples:
      unmask run-one results/runs/unmask_arith-trim-0123456789abcdef
      unmask run-one results/runs/unmask_arith-trim-0123456789abcdef --keep-output
    """
    run = RunFolder(folder.resolve())
    if not (run.folder / "run.json").exists():
        raise UnmaskError(f"{folder} is no run of a store; `unmask run RECIPE` plans runs and starts them.")
    starter = WorkerEnd() if stay else None
    if run.result() is not None and starter is None:
        click.echo(f"{run.name} is done.")
        return
    worker = _Worker(WorkerFile.create(run.store), starter, keep_output)
    try:
        worker.work(run)
    finally:
        worker.file.close()


class _Worker:
    """This process, from its first run to its last."""

    def __init__(self, file: WorkerFile, starter: WorkerEnd | None, keep_output: bool) -> None:
        self.file, self._starter, self._keep_output = file, starter, keep_output
        self._log: subprocess.Popen[bytes] | None = None
        self._attempt: Attempt | None = None
        self._memory: LoadedEngines | None = None

    def work(self, first: RunFolder) -> None:
        """Execute a run, and those that the starter gives, until one needs a fresh worker."""
        signal.signal(signal.SIGTERM, _interrupted)
        signal.signal(CANCEL_SIGNAL, self._on_cancel)
        run: RunFolder | None = first
        while run is not None:
            word = self._take(run)
            if self._starter is None or word is None:
                return
            self._starter.say(word)
            folder = None if word == UNFIT else self._starter.next_folder()
            run = None if folder is None else RunFolder(folder)

    def _take(self, run: RunFolder) -> Word | None:
        """Execute a run if this worker can and nobody else is at it; None where it is to be this worker's last."""
        memory = self._memory
        if not (run.folder / "run.json").exists() or (memory is not None and not memory.suit(run)):
            return UNFIT
        if run.result() is not None:
            return FREE
        self.file.hold(run.id)
        try:
            attempt = run.new_attempt(self.file.name)
            other = holder(run, attempt)
            if other is not None:
                attempt.withdraw()
                click.echo(f"Another worker is at {run.name} ({other.record().host}).")
                return HELD
            self._execute(run, attempt)
        finally:
            self.file.hold(None)
        return None if self._memory is not None and self._memory.ran_out else FREE

    def _execute(self, run: RunFolder, attempt: Attempt) -> None:
        if not self._keep_output:
            self._redirect(attempt.log)
        self._attempt = attempt
        try:
            with attempt.working():
                loaded_code()  # code that is edited while the model is loaded is not what this process runs
                # Imported here, so that a broken installation of torch is written down as a failure of the attempt.
                from unmask.analysis.stopping import fate_of
                from unmask.evaluation.engines import LoadedEngines
                from unmask.evaluation.worker import complete

                self._memory = self._memory or LoadedEngines()
                published = complete(run, attempt, fate_of, self._memory)
        except KeyboardInterrupt:
            click.echo("Stopped; running it again goes on from here.", err=True)
            if self._starter is not None and attempt.is_cancelled():
                return
            raise
        except UnmaskError:
            raise
        except Exception:
            traceback.print_exc()
            raise
        finally:
            self._attempt = None
        if (end := stopped(attempt)) is not None:
            click.echo(f"{run.name} is stopped after {end.rows} of {end.of} rows: {end.reason}.")
            return
        click.echo(f"{run.name} is done." if published else f"{run.name} was done by another worker first.")

    def _on_cancel(self, number: int, frame: FrameType | None) -> None:
        """Somebody wants the present run to end; one that has just ended is none of their business."""
        del number, frame
        if self._attempt is not None and self._attempt.is_cancelled():
            raise KeyboardInterrupt

    def _redirect(self, log: Path) -> None:
        """Send everything that this process and its children print, without secrets, to the attempt's log."""
        before = self._log
        with open_to_append(log) as file:
            self._log = clean_copy(file)
        assert self._log.stdin is not None, "it was asked for"
        with self._log.stdin as output:
            _print_to(output.fileno())
        if before is None:
            atexit.register(self._close_log)
        else:
            _wait_for(before)

    def _close_log(self) -> None:
        """Let the last words reach the log before this process ends."""
        with Path(os.devnull).open("wb") as nowhere:
            _print_to(nowhere.fileno())
        if self._log is not None:
            _wait_for(self._log)


def _wait_for(copy: "subprocess.Popen[bytes]") -> None:
    with suppress(subprocess.TimeoutExpired):
        copy.wait(LOG_SECONDS)


def _print_to(descriptor: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """A request to stop is no failure: the run goes on when it is started again."""
    del number, frame
    raise KeyboardInterrupt
