"""`unmask run-one`: what every worker starts as. Executes one run of a store and leaves everything in its folder."""

import atexit
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType

import click

from unmask.errors import UnmaskError
from unmask.launch.processes import LOG_SECONDS
from unmask.store.environment import loaded_code
from unmask.store.files import open_to_append
from unmask.store.redaction import clean_copy
from unmask.store.run_folder import RunFolder
from unmask.store.stopping import stopped


@click.command(name="run-one")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--keep-output", is_flag=True, help="Print to the terminal instead of the attempt's log.")
def run_one(folder: Path, keep_output: bool) -> None:
    """Execute one run that `unmask run` has planned, going on from what earlier attempts have answered.

    \b
    Examples:
      unmask run-one results/runs/unmask_arith-trim-0123456789abcdef
      unmask run-one results/runs/unmask_arith-trim-0123456789abcdef --keep-output
    """
    run = RunFolder(folder.resolve())
    if not (run.folder / "run.json").exists():
        raise UnmaskError(f"{folder} is no run of a store; `unmask run RECIPE` plans runs and starts them.")
    if run.result() is not None:
        click.echo(f"{run.name} is done.")
        return
    signal.signal(signal.SIGTERM, _interrupted)
    attempt = run.new_attempt()
    if not keep_output:
        _redirect(attempt.log)
    try:
        with attempt.working():
            loaded_code()  # code that is edited while the model is loaded is not what this process runs
            # Imported here, so that a broken installation of torch is written down as a failure of the attempt.
            from unmask.analysis.stopping import fate_of
            from unmask.evaluation.worker import complete

            published = complete(run, attempt, fate_of)
    except KeyboardInterrupt:
        click.echo("Stopped; running it again goes on from here.", err=True)
        raise
    except UnmaskError:
        raise
    except Exception:
        traceback.print_exc()
        raise
    if (end := stopped(attempt)) is not None:
        click.echo(f"{run.name} is stopped after {end.rows} of {end.of} rows: {end.reason}.")
        return
    click.echo(f"{run.name} is done." if published else f"{run.name} was done by another worker first.")


def _redirect(log: Path) -> None:
    """Send everything that this process and its children print, without secrets, to the attempt's log."""
    with open_to_append(log) as file:
        copy = clean_copy(file)
    assert copy.stdin is not None, "it was asked for"
    with copy.stdin as output:
        _print_to(output.fileno())
    atexit.register(_close, copy)


def _close(copy: "subprocess.Popen[bytes]") -> None:
    """Let the last words reach the log before this process ends."""
    with Path(os.devnull).open("wb") as nowhere:
        _print_to(nowhere.fileno())
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
