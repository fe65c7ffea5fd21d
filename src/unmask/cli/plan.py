"""`unmask plan`: what a recipe would run and what it can show at all. Submits and writes nothing."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE
from rich.table import Table

from unmask.cli.recipes import open_recipe
from unmask.cli.sweep_options import selection, store_option
from unmask.cli.sweep_table import console, counts, duration, status_text
from unmask.cost import DEVICES
from unmask.launch.todo import Item, items_of, still_to_do
from unmask.spec.lock import Lock
from unmask.spec.sweep import sweep_of, task_label
from unmask.store.store import Store

if TYPE_CHECKING:
    from unmask.analysis.forecast import Forecast


@click.command(short_help="What a recipe would run, and what it can show.")
@click.argument("recipe", type=Path)
@selection
@store_option
@click.option(
    "--device",
    type=click.Choice(sorted(DEVICES)),
    help="Roofline of the ceilings. [rtx6000; for recipes without a GPU the work skipped]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(
    recipe: Path,
    task: tuple[str, ...],
    config: tuple[str, ...],
    limit: int | None,
    store: Path | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Show the runs of a recipe, what is done and to do, what it may cost, and what it can show at all.

    Ceilings are those of equal steps at batch 1. Nothing is submitted or written but
    the lock, and that only where nothing need be downloaded for it.

    \b
    Examples:
      unmask plan recipes/00_baseline_embedded
      unmask plan recipes/00_baseline --task gsm8k --config 'k2_*' --limit 100
    """
    from unmask.analysis.ceilings import outlook
    from unmask.analysis.forecast import forecast

    opened = open_recipe(recipe)
    lock = opened.lock()
    planned = sweep_of(opened.recipe, lock, task, config, limit)
    place = Store.at(store)
    items = items_of(place, planned)
    found = outlook(opened.recipe, lock, device)
    todo = still_to_do(items)
    expected = forecast(opened.recipe, lock, [item.planned for item in todo], place)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "experiment": opened.recipe.name,
                    "runs": [
                        {
                            "id": item.run.id,
                            "task": item.planned.task,
                            "limit": item.planned.limit,
                            "configuration": item.planned.configuration,
                            "kind": item.planned.kind,
                            "status": item.state.status,
                            "reason": item.state.reason,
                            "expected_seconds": expected.seconds.get(item.run.id) if expected else None,
                        }
                        for item in items
                    ],
                    "to_do": len(todo),
                    "expected_seconds": expected.total if expected else None,
                    "expected_by": expected.basis if expected else None,
                    "outlook": asdict(found),
                }
            )
        )
        return
    screen = console()
    screen.print(_grid(items, found))
    screen.print(f"{len(items)} runs: {counts(items)}.")
    if todo:
        screen.print(
            f"To do: {len(todo)} runs, {_time_needed(expected) if expected else _work(todo, lock, found)}."
        )
    for group in found.equal:
        screen.print(f"Equal by construction (controls): {', '.join(group)}.")
    if found.beyond:
        screen.print(f"[yellow]{found.beyond}[/]")
    if found.samples_needed:
        screen.print(_samples(items, lock, found.samples_needed, opened.recipe.success))


def _grid(items: list[Item], found: Any) -> Table:
    tasks = list(
        dict.fromkeys(
            (item.planned.task, item.planned.limit) for item in items if item.planned.kind == "accuracy"
        )
    )
    table = Table("configuration", box=SIMPLE)
    table.add_column("FLOPs saved at most", justify="right")
    table.add_column("speed-up at most", justify="right")
    for name, limit in tasks:
        table.add_column(f"{task_label(name, limit)}", justify="right")
    states = {
        (item.planned.configuration, item.planned.task, item.planned.limit): item.state.status
        for item in items
        if item.planned.kind == "accuracy"
    }
    for name in dict.fromkeys(
        item.planned.configuration for item in items if item.planned.kind == "accuracy"
    ):
        ceiling = found.ceilings[name]
        table.add_row(
            name,
            f"{ceiling.flops_saved:.1%}",
            "never acts" if ceiling.dead else f"{ceiling.speedup:.2f}x",
            *(status_text(states[name, *task]) for task in tasks),
        )
    for item in items:
        if item.planned.kind == "timing":
            many, rounds = len(item.planned.identity["configurations"]), item.planned.identity["repeats"]
            name = item.planned.configuration
            label = f"{name}: {many} configurations, {item.planned.limit} prompts, {rounds} rounds"
            cells = [status_text(item.state.status) if task == item.planned.task else "" for task, _ in tasks]
            table.add_row(label, "", "", *cells)
    return table


def _time_needed(expected: "Forecast") -> str:
    rest = f"; not counted: {expected.unknown}, of which nothing like it was run" if expected.unknown else ""
    return f"about {duration(expected.total)} one after the other, by {expected.basis}{rest}"


def _work(todo: list[Item], lock: Lock, found: Any) -> str:
    from unmask.analysis.ceilings import rows_of

    rows = sum(rows_of(item.planned, lock) for item in todo if item.planned.kind == "accuracy")
    flops = sum(
        rows_of(item.planned, lock) * found.flops[item.planned.configuration]
        for item in todo
        if item.planned.kind == "accuracy"
    )
    return (
        f"{rows} answers, some {flops / 1e12:.3g} TFLOP if each has 256 tokens; how long is unknown: "
        "try `unmask run RECIPE --canary 10`"
    )


def _samples(items: list[Item], lock: Lock, needed: int, success: Any) -> str:
    from unmask.analysis.ceilings import rows_of

    rows = max(
        (
            rows_of(item.planned, lock)
            for item in items
            if item.planned.task == success.task and item.planned.kind == "accuracy"
        ),
        default=0,
    )
    enough = "enough" if rows >= needed else "[yellow]too few: raise the limit[/]"
    return (
        f"To tell a loss below {success.confirm.drop:g} on {success.task}, about {needed} rows are needed "
        f"(80 % power); the recipe asks {rows}: {enough}."
    )
