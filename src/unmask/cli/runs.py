"""The verbs that look after single runs: `unmask logs`, `cancel`, `retract` and `rm`."""

from pathlib import Path

import click

from unmask import lab
from unmask.analysis.words import counted, join_words
from unmask.cli.options import store_option
from unmask.cli.screen import say
from unmask.lab.names import configurations_of
from unmask.lab.runs import open_store, removable
from unmask.reading import open_plain, plain_lines, printable
from unmask.store.redaction import redacted
from unmask.store.run_folder import RunFolder


@click.command()
@click.argument("run")
@store_option
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Which attempt. [the newest]")
@click.option("--path", "only_path", is_flag=True, help="Print the file's name only.")
def logs(run: str, store: Path | None, attempt: int | None, only_path: bool) -> None:
    """Print the log of a run: its id, the beginning of it, or its configuration, as `unmask status` shows it.

    \b
    Examples:
      unmask logs f91f72e0
      unmask logs gsm8k/k2_middle
      tail -f $(unmask logs f91f72e0 --path)
    """
    file = lab.logs(run, attempt=attempt, store=store)
    if only_path:
        click.echo(str(file))
        return
    with open_plain(file) as log:
        for line in plain_lines(log):
            # What SLURM wrote of a job has not passed the redaction.
            click.echo(printable(redacted(line.decode("utf-8", errors="replace"))), nl=False)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="EXPERIMENT_OR_RUN...")
@store_option
def cancel(names: tuple[str, ...], store: Path | None) -> None:
    """Stop the runs of experiments, or single runs, that wait or are under way; what they answered is kept.

    An experiment is stopped with its jobs and workers, and on this machine with the sweep that started them, as by
    Ctrl-C. Of a single run only this run is: its worker takes the next one.

    \b
    Examples:
      unmask cancel 00_baseline
      unmask cancel f91f72e0
    """
    stopped = lab.cancel(*names, store=store)
    jobs, workers = counted(stopped.jobs, "job"), counted(stopped.workers, "worker")
    ending = f" {counted(stopped.runs, 'run')} told to end; workers go on." if stopped.runs else ""
    click.echo(f"{jobs} cancelled, {workers} on this machine stopped.{ending}")


@click.command()
@click.argument("run")
@click.option("--reason", metavar="TEXT", help="What is wrong with it.")
@click.option("--undo", is_flag=True, help="Let the result count again; the reason is kept.")
@store_option
def retract(run: str, reason: str | None, undo: bool, store: Path | None) -> None:
    """Retract the result of a run: it stays on record with the reason and enters no table from now on.

    To compute it anew, use `unmask run RECIPE --force NAME`.

    \b
    Examples:
      unmask retract f91f72e0 --reason "the GPU was shared with another job"
      unmask retract 05_mine/gsm8k/k2_middle --undo
    """
    if undo and reason is not None:
        raise click.UsageError("--undo takes no --reason; leave one of them out.")
    if not undo and reason is None:
        raise click.UsageError("Missing option '--reason'.")
    folder = lab.retract(run, reason or "", undo=undo, store=store)
    say(f"{folder.name} {'counts again' if undo else 'is retracted'}.")
    names = configurations_of(open_store(store), RunFolder(folder))
    if len(names) > 1:
        say(f"It is the run of {join_words(names)}.")


@click.command(name="rm")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@store_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--assume-gone", is_flag=True, help="Take jobs that SLURM does not answer for as ended.")
def remove(runs: tuple[str, ...], store: Path | None, yes: bool, assume_gone: bool) -> None:
    """Delete runs: identity, attempts, answers and result. To keep an invalid result on record, retract it.

    \b
    Examples:
      unmask rm f91f72e0 4c0af06c
      unmask rm f91f72e0 --yes
    """
    if not yes:
        names = ", ".join(folder.name for folder in removable(runs, store, assume_gone=assume_gone))
        click.confirm(f"Delete {names}?", abort=True)
    removed = lab.remove(*runs, store=store, assume_gone=assume_gone)
    click.echo(f"{counted(len(removed), 'run')} deleted.")
