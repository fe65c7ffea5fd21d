"""`unmask run`: executes what a recipe still lacks, here or on a cluster, and can be repeated at any time."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from unmask.cli.queue import job_words
from unmask.cli.recipes import OpenRecipe, open_recipe
from unmask.cli.run_records import record
from unmask.cli.sweep_options import selection, store_option
from unmask.cli.sweep_table import console, counts, results_table
from unmask.errors import UnmaskError
from unmask.launch.todo import Item, forced, items_of, still_to_do
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store.index import IndexRecord, listing
from unmask.store.store import Store

if TYPE_CHECKING:
    from unmask.analysis.forecast import Forecast

ALL = "*"


@click.command(short_help="Execute what a recipe still lacks.")
@click.argument("recipe", type=Path)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@selection
@store_option
@click.option(
    "--on", type=click.Choice(["local", "slurm"]), default="local", show_default=True, help="Where."
)
@click.option(
    "--slots", type=click.IntRange(min=1), metavar="N", help="Runs at a time here. [one a GPU, else 1]"
)
@click.option(
    "--force",
    is_flag=False,
    flag_value=ALL,
    metavar="[NAME ...]",
    help="Execute again what is done: all, or these configurations. Old results are set aside.",
)
@click.option("--retry-failed", is_flag=True, help="Execute failed runs again.")
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
    on: str,
    slots: int | None,
    force: str | None,
    retry_failed: bool,
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
    opened = open_recipe(recipe)
    place = Store.at(store)
    planned = sweep_of(opened.recipe, opened.lock(), task, config, limit)
    screen = console()
    if canary is not None and not dry_run:
        from unmask.cli.canary import try_canary

        try_canary(opened, place, planned, canary, _starter(on, slots, opened, place, screen), screen)
    items = items_of(place, planned, job_words(place))
    again = [] if force is None else _again(items, (force, *names))
    todo = again if force is not None else still_to_do(items, retry_failed)
    if dry_run:
        for item in todo:
            screen.print(f"{item.planned.label}  {item.run.id}  ({item.state.status})")
        screen.print(f"{len(todo)} of {len(items)} runs would be executed.")
        return
    # Results that are about to be set aside, or to be added, must not change what is predicted.
    expected = _forecast(opened, place, todo) if on == "local" else None
    for item in again:
        if item.run.folder.exists():
            item.run.set_aside()
    for item in todo:
        item.run.put_damaged_away()
    record(place, opened, items)
    if not todo:
        screen.print(f"Nothing to do: {counts(items)}.")
    elif on == "slurm":
        from unmask.cli.submission import submit_runs

        submit_runs(opened, place, todo)
        screen.print(
            "`unmask status --watch` shows how they go; repeating this command resumes what was cut off."
        )
        return
    else:
        from unmask.cli.sweep_live import run_here

        run_here(todo, slots, screen)
    _close(opened, place, planned, todo, expected)


def _again(items: Sequence[Item], names: Sequence[str]) -> list[Item]:
    for name in names:
        if not forced(items, [name]):
            known = ", ".join(dict.fromkeys(item.planned.configuration for item in items))
            raise UnmaskError(f"No configuration is called {name}; there are {known}.")
    found = forced(items, names)
    for item in found:
        if item.state.status in ("running", "pending"):
            raise UnmaskError(
                f"{item.planned.label} is {item.state.status}; cancel it with `unmask cancel {item.run.id}` first."
            )
    return found


def _starter(
    on: str, slots: int | None, opened: OpenRecipe, store: Store, screen: Console
) -> Callable[[Sequence[Item]], None]:
    """How runs that must be over before others start are executed."""
    if on == "local":
        from unmask.cli.sweep_live import run_here

        return lambda items: run_here(items, slots, screen)
    from unmask.cli.submission import submit_runs, wait_for

    def on_the_cluster(items: Sequence[Item]) -> None:
        submit_runs(opened, store, items)
        wait_for(store, opened.recipe.name, items, screen)

    return on_the_cluster


def _forecast(opened: OpenRecipe, store: Store, todo: Sequence[Item]) -> "Forecast | None":
    from unmask.analysis.forecast import forecast

    return forecast(opened.recipe, opened.lock(), [item.planned for item in todo], store)


def _close(
    opened: OpenRecipe,
    store: Store,
    planned: Sequence[PlannedRun],
    started: Sequence[Item],
    expected: "Forecast | None",
) -> None:
    items = items_of(store, planned)
    tried = {item.run.id for item in started}
    screen = console()
    title = f"{opened.recipe.name}: {counts(items)}"
    results = listing(store).records
    screen.print(results_table(items, results, title))
    if told := _against(expected, started, results):
        screen.print(told)
    lacking = [
        item
        for item in items
        if item.state.status == "failed"
        or (item.run.id in tried and item.state.status in ("interrupted", "missing"))
    ]
    for item in lacking:
        reason = item.state.reason or "its worker ended before it began"
        screen.print(f"[red]{item.planned.label} {item.state.status}:[/] {reason}")
    if lacking:
        screen.print("`unmask logs RUN` shows more; `unmask run RECIPE --retry-failed` tries again.")
        raise click.exceptions.Exit(1)


def _against(
    expected: "Forecast | None", started: Sequence[Item], results: Mapping[str, IndexRecord]
) -> str | None:
    """Predicted seconds beside those of the runs that were executed whole now."""
    if expected is None:
        return None
    predicted = actual = 0.0
    for item in started:
        seconds, result = expected.seconds.get(item.run.id), results.get(item.run.name)
        if seconds is not None and result is not None and result.seconds and not result.answers.resumed:
            predicted, actual = predicted + seconds, actual + result.seconds
    return f"Predicted {_time(predicted)} of work, took {_time(actual)}." if actual else None


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"
