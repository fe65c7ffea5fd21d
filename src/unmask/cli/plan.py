"""`unmask plan`: what a recipe would run and what it can show at all. Submits and writes nothing."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from unmask import lab
from unmask.analysis.ceilings import Outlook
from unmask.analysis.equality import is_scored
from unmask.analysis.verdict import goal_of
from unmask.analysis.words import bound_points, counted, duration, join_words, percent
from unmask.cli.options import run_equal_option, selection, store_option, until_decided_option
from unmask.cli.screen import console, counts, status_text, tell
from unmask.cost import DEVICES
from unmask.errors import UnmaskError
from unmask.lab.planning import Plan, SweepRun
from unmask.spec.family import FAMILIES
from unmask.spec.sweep import task_label

MOST_COLUMNS = 4
"""Tasks that have a column of their own."""
MOST_NAMED = 6
"""Configurations that a sentence names."""
UNLOCKED = (
    "Not locked yet: this plan goes by the checkpoint's shape and the published numbers of rows, and does not know "
    "which runs are done. `unmask prepare {}` fetches and locks what they depend on."
)


@click.command()
@click.argument("recipe", type=Path)
@selection
@store_option
@until_decided_option
@run_equal_option
@click.option(
    "--device",
    type=click.Choice(sorted(DEVICES)),
    help="Roofline of the ceilings. [rtx6000; for recipes without a GPU the work skipped]",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="NAME=FILE",
    help="Steps of a configuration, by a trace of `unmask probe` with its decode settings.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(
    recipe: Path,
    task: tuple[str, ...],
    config: tuple[str, ...],
    limit: int | None,
    store: Path | None,
    until_decided: bool | None,
    run_equal: bool,
    device: str | None,
    traces: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the runs of a recipe, what is done and to do, what it may cost, and what it can show at all.

    Ceilings are those of equal steps at batch 1. What other decode settings, such as a threshold, save is priced by
    the steps of earlier runs, of a canary, or of traces. Nothing is submitted or written but
    the lock, and that only where nothing need be downloaded for it. Where it would have
    to be, the plan goes by published shapes and row counts, and says so.

    \b
    Examples:
      unmask plan recipes/00_baseline_embedded
      unmask plan recipes/00_baseline --task gsm8k --config 'k2_*' --limit 100
      unmask plan recipes/00_baseline --trace k1_first=t0.9.npz --trace t0.7=t0.7.npz
    """
    sweep = lab.plan(
        recipe,
        tasks=task,
        configurations=config,
        limit=limit,
        store=store,
        until_decided=until_decided,
        run_equal=run_equal,
        device=device,
        traces=dict(map(_named_trace, traces)),
        on_event=tell,
    )
    if as_json:
        click.echo(json.dumps(_document(sweep)))
        return
    outlook, screen = sweep.outlook, console()
    screen.print(_grid(sweep))
    if not sweep.locked:
        screen.print(UNLOCKED.format(recipe))
    every = sweep.runs_with_twins
    standing = f": {counts(run.status for run in every)}" if sweep.locked else ""
    screen.print(f"{_number(every)}{standing}.")
    if sweep.to_do:
        screen.print(f"To do: {_number(sweep.to_do)}, {_time_needed(sweep)}.")
    for sentence in (*_sizes(sweep), *sweep.changed, *_remarks(sweep)):
        screen.print(sentence)
    success = sweep.opened.recipe.success
    if success is not None:
        screen.print(f"Criterion: some candidate reaches {goal_of(success)}.")
    for sentence in _decisions(sweep):
        screen.print(sentence)
    if outlook.beyond:
        screen.print(Text(outlook.beyond, "yellow"))
    if outlook.samples_needed and (enough := _samples(sweep, outlook.samples_needed)):
        screen.print(enough)


def _named_trace(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise UnmaskError(
            f"--trace is {text!r}; write NAME=FILE, the name of a configuration and of a trace."
        )
    return name, file


def _document(sweep: Plan) -> dict[str, Any]:
    expected = sweep.forecast
    return {
        "experiment": sweep.experiment,
        "locked": sweep.locked,
        "runs": [_run_of(sweep, run) for run in sweep.runs],
        "twins": [_run_of(sweep, run) for run in sweep.twins],
        "if_all_ran": asdict(sweep.cost[0]),
        "as_planned": asdict(sweep.cost[1]),
        "to_do": len(sweep.to_do),
        "expected_seconds": expected.total if expected else None,
        "expected_by": expected.basis if expected else None,
        "outlook": asdict(sweep.outlook),
        "decisions": [asdict(each) for each in sweep.decisions],
    }


def _run_of(sweep: Plan, run: SweepRun) -> dict[str, Any]:
    expected = sweep.forecast
    return {
        "id": run.id if sweep.locked else None,
        "task": run.planned.task,
        "limit": run.planned.limit,
        "configuration": run.planned.configuration,
        "run_of": run.executed.configuration,
        "kind": run.planned.kind,
        "status": run.status if sweep.locked else None,
        "rows": sweep.rows(run),
        "reason": run.state.reason,
        "expected_seconds": expected.seconds.get(run.id) if expected else None,
    }


def _grid(sweep: Plan) -> Table:
    """A row for each configuration; its runs stand under their tasks, or are summed up where these are many."""
    accuracy = [run for run in sweep.runs if run.planned.kind == "accuracy"]
    tasks = list(dict.fromkeys((run.planned.task, run.planned.limit) for run in accuracy))
    outlook, in_detail = sweep.outlook, len(tasks) <= MOST_COLUMNS
    table = Table(box=SIMPLE)
    table.add_column("configuration", overflow="fold")
    for heading in (
        "FLOPs saved at most",
        "speed-up at most",
        *(["tokens a step"] * bool(outlook.tokens_a_step)),
    ):
        table.add_column(heading, justify="right")
    for heading in [task_label(*task) for task in tasks] if in_detail else ["runs"]:
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(run.planned.configuration for run in accuracy):
        runs = [run for run in accuracy if run.planned.configuration == name]
        if in_detail:
            states = [_standing(sweep, run) for run in runs]
        else:
            states = [Text(counts(run.status for run in runs) if sweep.locked else f"{len(runs)} planned")]
        table.add_row(name, *_price(outlook, name), *states)
    return table


def _standing(sweep: Plan, run: SweepRun) -> Text:
    """Without a lock nothing is known of a run but that it is planned."""
    return status_text(run.status) if sweep.locked else Text("planned", "dim")


def _price(outlook: Outlook, name: str) -> list[str]:
    """What a configuration saves against full compute with the control's settings, as far as that is known."""
    ceiling = outlook.ceilings[name]
    saved, speedup = f"{ceiling.flops_saved:.1%}", f"{ceiling.speedup:.2f}x"
    if name in outlook.unpriced:
        cells = ["unknown"] * 2 if ceiling.dead else [saved, f"{speedup} at equal steps"]
    elif name in outlook.other_settings:
        cells = [saved, f"about {speedup}"]
    else:
        cells = [saved, "never acts" if ceiling.dead else speedup]
    if not outlook.tokens_a_step:
        return cells
    steps = outlook.tokens_a_step.get(name)
    return [*cells, "unknown" if steps is None else f"{steps:.2f}"]


def _sizes(sweep: Plan) -> Iterator[str]:
    """Each task with its rows, and each timing run."""
    rows = {run.planned.task: sweep.rows(run) for run in sweep.runs if run.planned.kind == "accuracy"}
    yield f"Rows: {', '.join(f'{task} {count:,}' for task, count in rows.items())}."
    for run in sweep.runs:
        if run.planned.kind == "timing":
            identity = run.executed.identity
            name = "" if run.planned.configuration == "timing" else f" ({run.planned.configuration})"
            yield (
                f"Timing of {run.planned.task}{name}: {counted(len(identity['configurations']), 'configuration')}, "
                f"{counted(run.planned.limit or 0, 'prompt')}, {counted(identity['repeats'], 'round')}"
                f"{f'; {run.status}' if sweep.locked else ''}."
            )


def _remarks(sweep: Plan) -> Iterator[str]:
    """What is known, and what is not, of configurations and tasks."""
    outlook, planned = sweep.outlook, {run.planned.task for run in sweep.runs}
    if outlook.steps_known_by:
        yield f"Tokens a step are those of {join_words(outlook.steps_known_by)}."
    if FAMILIES[sweep.lock.family].canvas:
        yield "Prompts are taken to have 128 tokens; on a canvas, what caches and trim save grows with the prompt."
    if outlook.unpriced:
        yield (
            "The steps of other decode settings than the control's are not known, and so is not what they save or cost "
            f"({_some(outlook.unpriced)}): try `unmask run RECIPE --canary 10`, or give traces of `unmask probe` by "
            "--trace NAME=FILE, the control's too."
        )
    for group in outlook.equal:
        yield f"Equal by construction: {', '.join(group)}."
    yield from _savings(sweep)
    tasks: dict[tuple[str, str, str], list[str]] = {}
    for part in (part for part in outlook.idle if part.task in planned):
        tasks.setdefault((_some(part.configurations), part.fate, part.reason), []).append(part.task)
    for (names, fate, reason), concerned in tasks.items():
        yield f"{fate} on {', '.join(concerned)}: {names}; {reason}."


def _number(runs: Sequence[SweepRun]) -> str:
    """How many runs and twins, in words."""
    twins = sum(run.is_twin for run in runs)
    return counted(len(runs) - twins, "run") + (f" and {counted(twins, 'twin')}" if twins else "")


def _savings(sweep: Plan) -> Iterator[str]:
    """What is spared by executing one of the configurations that are equal by construction."""
    before, after = sweep.cost
    if after.runs < before.runs:
        yield (
            f"One run stands for what is equal by construction on its task: {counted(after.runs, 'accuracy run')} and "
            f"{counted(after.twins, 'twin')} with {after.rows:,} rows instead of {before.runs} runs with "
            f"{before.rows:,} ({percent(1 - after.rows / before.rows, 0)} fewer). --run-equal executes them all."
        )


def _some(names: list[str]) -> str:
    """The first of many names, and how many there are."""
    return ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )


def _time_needed(sweep: Plan) -> str:
    expected = sweep.forecast
    if expected is not None:
        rest = (
            f"; not counted: {expected.unknown} without a comparable earlier run" if expected.unknown else ""
        )
        return f"about {duration(expected.total)} one after the other, by {expected.basis}{rest}"
    runs = [run for run in sweep.to_do if run.planned.kind != "timing"]
    generating = [run for run in runs if not is_scored(run.planned.task)]
    flops = sum(sweep.rows(run) * sweep.outlook.flops[run.planned.configuration] for run in generating)
    work = (
        f", some {flops / 1e12:.3g} TFLOP if each generated one has 256 tokens and shares nothing"
        if generating
        else ""
    )
    return f"{sum(map(sweep.rows, runs)):,} answers{work}; how long is unknown: try `unmask run RECIPE --canary 10`"


def _decisions(sweep: Plan) -> Iterator[str]:
    """How likely and how soon runs that may end early are decided."""
    if sweep.terms is None or not sweep.decisions:
        return
    yield f"Until decided, with a look after every {counted(sweep.terms.rows, 'row')} (simulated):"
    for each in sweep.decisions:
        loss = f"loses {bound_points(each.loss)}" if each.loss else "loses nothing"
        yield (
            f"  A candidate that {loss} is decided with a probability of {percent(each.probability, 0)}, after "
            f"{each.rows:,} of {each.of:,} rows in the median."
        )


def _samples(sweep: Plan, needed: int) -> str | None:
    """Whether the rows of the criterion's task are enough; None where it is not among the tasks that were asked for."""
    success = sweep.opened.recipe.success
    assert success is not None, "only a criterion needs samples"
    runs = [run for run in sweep.runs if (run.planned.task, run.planned.kind) == (success.task, "accuracy")]
    if not runs:
        return None
    rows = max(map(sweep.rows, runs))
    if rows >= needed:
        enough = "enough"
    elif any(run.planned.limit is not None for run in runs):
        enough = "too few: raise the limit"
    else:
        enough = "all that there are, so that the verdict may stay undecided"
    return (
        f"To tell a loss below {bound_points(success.confirm.drop)} on {success.task}, about {needed} rows are needed "
        f"(80 % power); the recipe asks {rows}: {enough}."
    )
