"""Runs a sweep on this machine while a person watches: a bar for the sweep and one for each run under way."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from unmask.launch.events import Ended, Event, Skipped, Started
from unmask.launch.jobs import Job
from unmask.launch.local import local_pool
from unmask.launch.slots import find_slots
from unmask.launch.todo import Item
from unmask.store.run_folder import RunFolder
from unmask.store.state import state_of


def run_here(items: Sequence[Item], slots: int | None, console: Console) -> None:
    """Execute all items, timing runs last and alone; a run that fails does not stop the others."""
    if not items:
        return
    places = find_slots(slots)
    console.print(
        f"{len(items)} runs on {', '.join(place.name for place in places)}. Ctrl-C stops; repeat to go on."
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    timed = [item.job for item in items if item.planned.kind == "timing"]
    others = [item.job for item in items if item.planned.kind != "timing"]
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        whole = bars.add_task("sweep", total=len(items))
        for jobs, where in ((others, places), (timed, places[:1])):
            with local_pool(jobs, where, held=_held) as events:
                for event in events:
                    _show(bars, whole, event)


def _show(bars: Progress, whole: TaskID, event: Event) -> None:
    under_way = {str(task.fields["run"]): task.id for task in bars.tasks if "run" in task.fields}
    if isinstance(event, Started):
        bars.add_task(event.job.label, total=None, run=event.job.run)
    elif isinstance(event, Ended):
        if event.job.run in under_way:
            bars.remove_task(under_way[event.job.run])
        bars.advance(whole)
        bars.console.print(_sentence(event))
    elif isinstance(event, Skipped):
        bars.advance(whole)
    else:
        for job in event.running:
            _show_progress(bars, under_way[job.run], job)


def _held(job: Job) -> bool:
    """Whether another runner's worker is at it."""
    return state_of(RunFolder(job.folder)).status == "running"


def _sentence(event: Ended) -> str:
    if event.done:
        return f"[green]done[/]    {event.job.label} ({event.seconds:.0f} s)"
    reason = event.error or state_of(RunFolder(event.job.folder)).reason or f"exit code {event.code}"
    return f"[red]failed[/]  {event.job.label}: {reason}"


def _show_progress(bars: Progress, bar: TaskID, job: Job) -> None:
    attempts = RunFolder(job.folder).attempts()
    reached = attempts[-1].reached() if attempts else None
    if reached and reached[1]:
        bars.update(bar, completed=reached[0], total=reached[1])
