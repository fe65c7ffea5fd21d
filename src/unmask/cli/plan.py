"""`unmask plan`: what a recipe would run and what it can show at all. Submits and writes nothing."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table

from unmask import lab
from unmask.analysis.words import duration
from unmask.cli.options import selection, store_option
from unmask.cli.screen import console, counts, status_text, tell
from unmask.cost import DEVICES
from unmask.lab.planning import Plan
from unmask.spec.sweep import task_label


@click.command()
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
    sweep = lab.plan(
        recipe, tasks=task, configurations=config, limit=limit, store=store, device=device, on_event=tell
    )
    if as_json:
        click.echo(json.dumps(_document(sweep)))
        return
    outlook, screen = sweep.outlook, console()
    screen.print(_grid(sweep))
    screen.print(f"{len(sweep.runs)} runs: {counts(run.status for run in sweep.runs)}.")
    if sweep.to_do:
        screen.print(f"To do: {len(sweep.to_do)} runs, {_time_needed(sweep)}.")
    for sentence in sweep.changed:
        screen.print(sentence, markup=False)
    for group in outlook.equal:
        screen.print(f"Equal by construction (controls): {', '.join(group)}.")
    if outlook.beyond:
        screen.print(f"[yellow]{outlook.beyond}[/]")
    if outlook.samples_needed:
        screen.print(_samples(sweep, outlook.samples_needed))


def _document(sweep: Plan) -> dict[str, Any]:
    expected = sweep.forecast
    return {
        "experiment": sweep.experiment,
        "runs": [
            {
                "id": run.id,
                "task": run.planned.task,
                "limit": run.planned.limit,
                "configuration": run.planned.configuration,
                "kind": run.planned.kind,
                "status": run.status,
                "reason": run.state.reason,
                "expected_seconds": expected.seconds.get(run.id) if expected else None,
            }
            for run in sweep.runs
        ],
        "to_do": len(sweep.to_do),
        "expected_seconds": expected.total if expected else None,
        "expected_by": expected.basis if expected else None,
        "outlook": asdict(sweep.outlook),
    }


def _grid(sweep: Plan) -> Table:
    accuracy = [run.planned for run in sweep.runs if run.planned.kind == "accuracy"]
    tasks = list(dict.fromkeys((planned.task, planned.limit) for planned in accuracy))
    table = Table("configuration", box=SIMPLE)
    table.add_column("FLOPs saved at most", justify="right")
    table.add_column("speed-up at most", justify="right")
    for name, limit in tasks:
        table.add_column(task_label(name, limit), justify="right")
    statuses = {
        (run.planned.configuration, run.planned.task, run.planned.limit): run.status
        for run in sweep.runs
        if run.planned.kind == "accuracy"
    }
    for name in dict.fromkeys(planned.configuration for planned in accuracy):
        ceiling = sweep.outlook.ceilings[name]
        table.add_row(
            name,
            f"{ceiling.flops_saved:.1%}",
            "never acts" if ceiling.dead else f"{ceiling.speedup:.2f}x",
            *(status_text(statuses[name, *task]) for task in tasks),
        )
    for run in sweep.runs:
        if run.planned.kind == "timing":
            identity = run.planned.identity
            label = (
                f"{run.planned.configuration}: {len(identity['configurations'])} configurations, "
                f"{run.planned.limit} prompts, {identity['repeats']} rounds"
            )
            cells = [status_text(run.status) if task == run.planned.task else "" for task, _ in tasks]
            table.add_row(label, "", "", *cells)
    return table


def _time_needed(sweep: Plan) -> str:
    expected = sweep.forecast
    if expected is not None:
        rest = (
            f"; not counted: {expected.unknown} without a comparable earlier run" if expected.unknown else ""
        )
        return f"about {duration(expected.total)} one after the other, by {expected.basis}{rest}"
    answers = {run.id: sweep.rows(run) for run in sweep.to_do if run.planned.kind == "accuracy"}
    flops = sum(
        answers[run.id] * sweep.outlook.flops[run.planned.configuration]
        for run in sweep.to_do
        if run.id in answers
    )
    return (
        f"{sum(answers.values())} answers, some {flops / 1e12:.3g} TFLOP if each has 256 tokens and shares "
        "nothing; how long is unknown: "
        "try `unmask run RECIPE --canary 10`"
    )


def _samples(sweep: Plan, needed: int) -> str:
    success = sweep.opened.recipe.success
    assert success is not None, "only a criterion needs samples"
    rows = max(
        (
            sweep.rows(run)
            for run in sweep.runs
            if run.planned.task == success.task and run.planned.kind == "accuracy"
        ),
        default=0,
    )
    enough = "enough" if rows >= needed else "[yellow]too few: raise the limit[/]"
    return (
        f"To tell a loss below {success.confirm.drop:g} on {success.task}, about {needed} rows are needed "
        f"(80 % power); the recipe asks {rows}: {enough}."
    )
