"""`unmask run` executes what a recipe still lacks, shows how it goes, and ends with the table of results."""

from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.status import Status
from rich.text import Text

from unmask import lab
from unmask.analysis.words import counted, duration
from unmask.cli.options import run_equal_option, selection, store_option, until_decided_option
from unmask.cli.screen import console, counts, results_table, tell
from unmask.errors import UnmaskError
from unmask.lab.executing import PoolOpened, SweepEvent, SweepOutcome, Waiting
from unmask.lab.planning import Selection
from unmask.lab.recipes import Message
from unmask.launch import Ended, Skipped, Started, Tick, WorkerCommand
from unmask.launch.slots import MOST_SLOTS
from unmask.store.run_folder import RunFolder
from unmask.store.state import state_of
from unmask.store.worker_file import TWINS

ALL = "*"


@click.command()
@click.argument("recipe", type=Path)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@selection
@store_option
@click.option(
    "--on", type=click.Choice(["local", "slurm"]), default="local", show_default=True, help="Where."
)
@click.option(
    "--slots",
    type=click.IntRange(1, MOST_SLOTS),
    metavar="N",
    help="Runs at a time here. [one a GPU, else 1]",
)
@click.option(
    "--force",
    is_flag=False,
    flag_value=ALL,
    metavar="[NAME ...]",
    help="Execute again what is done: all, or these configurations. Old results are set aside.",
)
@click.option("--retry-failed", is_flag=True, help="Execute failed runs again.")
@click.option("--assume-gone", is_flag=True, help="Take jobs that SLURM does not answer for as ended.")
@until_decided_option
@run_equal_option
@click.option("--dry-run", is_flag=True, help="Only say what would run.")
@click.option(
    "--canary",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try N rows of a few configurations first; go on only if the guards find nothing invalid.",
)
def run(
    recipe: Path,
    names: tuple[str, ...],
    task: tuple[str, ...],
    config: tuple[str, ...],
    limit: int | None,
    store: Path | None,
    on: Literal["local", "slurm"],
    slots: int | None,
    force: str | None,
    retry_failed: bool,
    assume_gone: bool,
    until_decided: bool | None,
    run_equal: bool,
    dry_run: bool,
    canary: int | None,
) -> None:
    """Execute the runs of a recipe that have no result yet.

    Interrupt it whenever you like: the same command goes on from there, answer by answer. A limited run never
    counts as the full one. On a cluster the jobs are submitted and the command returns.

    \b
    Examples:
      unmask run recipes/00_baseline_embedded --slots 2
      unmask run recipes/00_baseline --task gsm8k --limit 10
      unmask run recipes/00_baseline --on slurm --canary 10
      unmask run recipes/00_baseline --force k1_first k2_middle
    """
    if names and force is None:
        raise UnmaskError(
            f"{names[0]} is not understood; name configurations with --config, or after --force."
        )
    screen = console()
    chosen = Selection(
        tasks=task,
        configurations=config,
        limit=limit,
        store=store,
        force=None if force is None else (force, *names),
        retry_failed=retry_failed,
        assume_gone=assume_gone,
        until_decided=until_decided,
        run_equal=run_equal,
    )
    if dry_run:
        sweep = lab.plan(recipe, on_event=tell, **chosen)
        for each in sweep.to_do:
            screen.print(f"{each.label}  {each.id}  ({each.status})" if sweep.locked else each.label)
        if sweep.unknown:
            screen.print(sweep.unknown)
        for sentence in sweep.changed:
            screen.print(sentence)
        total = len(sweep.runs_with_twins)
        screen.print(f"{len(sweep.to_do)} of {counted(total, 'run')} would be executed.")
        return
    with SweepBars(screen) as bars:
        outcome = lab.run(recipe, on=on, slots=slots, canary=canary, on_event=bars.show, **chosen)
    show_outcome(outcome, screen)


class SweepBars:
    """Shows the events of a sweep: a bar for all of it and one for each run under way."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._bars: Progress | None = None
        self._waiting: Status | None = None
        self._whole = TaskID(0)

    def __enter__(self) -> "SweepBars":
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        if self._waiting is not None:
            self._waiting.stop()
        self._bars = self._waiting = None

    def show(self, event: SweepEvent) -> None:
        """Show one event."""
        if isinstance(event, Message):
            self._stop()
            self._screen.print(event.text)
        elif isinstance(event, Waiting):
            self._waiting = self._waiting or self._screen.status("waiting for the queue")
            self._waiting.start()
            self._waiting.update(counts(run.status for run in event.runs))
        elif isinstance(event, PoolOpened):
            self._open(event)
        elif self._bars is not None:
            self._show_run(self._bars, event)

    def _open(self, event: PoolOpened) -> None:
        self._stop()
        self._screen.print(
            f"{counted(event.runs, 'run')} on {', '.join(event.slots)}. Ctrl-C stops; repeat to go on."
        )
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=self._screen, disable=not self._screen.is_terminal)
        self._bars.start()
        self._whole = self._bars.add_task("sweep", total=event.runs)

    def _show_run(self, bars: Progress, event: SweepEvent) -> None:
        under_way = {str(task.fields["run"]): task.id for task in bars.tasks if "run" in task.fields}
        if isinstance(event, Started) and event.command.run not in under_way:
            bars.add_task(event.command.label, total=None, run=event.command.run)
        elif isinstance(event, Ended):
            if event.command.run in under_way:
                bars.remove_task(under_way[event.command.run])
            bars.advance(self._whole)
            self._screen.print(_sentence(event))
        elif isinstance(event, Skipped):
            bars.advance(self._whole)
        elif isinstance(event, Tick):
            for job in event.running:
                _show_progress(bars, under_way[job.run], job)


def _sentence(event: Ended) -> Text:
    if event.done:
        return Text.assemble(("done", "green"), f"    {event.command.label} ({event.seconds:.0f} s)")
    state = state_of(RunFolder(event.command.folder))
    if state.status == "stopped" and event.command.folder.parent.name == TWINS:
        return Text.assemble(("done", "green"), f"    {event.command.label} ({event.seconds:.0f} s)")
    if state.status == "stopped":
        return Text.assemble(
            ("stopped", "green"), f" {event.command.label} ({event.seconds:.0f} s) {state.reason}"
        )
    reason = event.error or state.reason or f"exit code {event.code}"
    return Text.assemble(("failed", "red"), f"  {event.command.label}: {reason}")


def _show_progress(bars: Progress, bar: TaskID, job: WorkerCommand) -> None:
    attempts = RunFolder(job.folder).attempts()
    reached = attempts[-1].reached() if attempts else None
    if reached and reached[1]:
        bars.update(bar, completed=reached[0], total=reached[1])


def show_outcome(outcome: SweepOutcome, screen: Console) -> None:
    """Say how the sweep ended: a table of results, the forecast beside the time taken, and what is lacking."""
    if outcome.submitted:
        screen.print(
            "`unmask status --watch` shows how they go; repeating this command resumes what was cut off."
        )
    else:
        _show_results(outcome, screen)
    for run in outcome.lacking:
        reason = run.state.reason or "its worker ended before it began"
        screen.print(f"{run.label} {run.status}: {reason}", style="red")
    if outcome.lacking:
        screen.print("`unmask logs RUN` shows more; `unmask run RECIPE --retry-failed` tries again.")
    if outcome.lacking or outcome.unknown:
        raise click.exceptions.Exit(1)


def _show_results(outcome: SweepOutcome, screen: Console) -> None:
    standing = counts(run.status for run in outcome.runs)
    if not outcome.started:
        screen.print(f"Nothing to do: {standing}.")
    screen.print(results_table(outcome.table(), f"{outcome.experiment}: {standing}"))
    if note := outcome.table_note():
        screen.print(note, markup=False)
    if times := outcome.predicted_and_actual():
        predicted, actual = map(duration, times)
        screen.print(
            f"Predicted {predicted} of work, took {actual} with the starting of workers; you waited "
            f"{duration(outcome.elapsed)}."
        )
