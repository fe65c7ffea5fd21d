"""`unmask status` and `unmask results`: where the runs of a store stand and what they came to, without torch."""

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unmask import lab
from unmask.analysis.words import counted, percent
from unmask.cli.options import store_option
from unmask.cli.screen import STYLES, console, results_table, status_text
from unmask.lab.outcomes import levels_of
from unmask.lab.runs import ExperimentStatus, open_store
from unmask.reading import printable_json
from unmask.spec.sweep import task_label
from unmask.store.experiments import experiment_names

PAUSE = 2.0
NOTHING_YET = "There is no experiment in {} yet; `unmask run RECIPE` begins one."
MOST_LISTED = 500
"""Runs of a store's only experiment that are listed although it was not named."""


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def results(experiments: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    """Print the table of results that `unmask run` ends with, of some experiments or of all.

    \b
    Examples:
      unmask results
      unmask results 00_baseline_embedded
      unmask results 00_baseline --json
    """
    place = open_store(store)
    names = experiments or tuple(experiment_names(place))
    tables = {name: lab.results(name, store=place) for name in names}
    if as_json:
        click.echo(printable_json(tables))
        return
    screen = console()
    if not tables:
        screen.print(NOTHING_YET.format(place.root), markup=False)
    for name, rows in tables.items():
        screen.print(results_table(rows, name))
        if note := levels_of(place, name):
            screen.print(note, markup=False)


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@store_option
@click.option("--watch", is_flag=True, help="Keep it on the screen until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(experiments: tuple[str, ...], store: Path | None, watch: bool, as_json: bool) -> None:
    """Show which runs are done, running, pending or failed, and why.

    Without a name every experiment is summed up in a line; with one, or where a store has no other, its runs are
    listed. Statuses are computed from what lies on disk and, for submitted runs, from what SLURM says; where it does
    not answer, they are unknown.

    \b
    Examples:
      unmask status
      unmask status 00_baseline_embedded --watch
      unmask status 00_baseline --json
    """
    standing = lab.status(*experiments, store=store)
    if as_json:
        click.echo(json.dumps([_document(each) for each in standing]))
        return
    screen = console()
    if not standing:
        screen.print(NOTHING_YET.format(open_store(store).root), markup=False)
        return
    if not watch:
        screen.print(_view(standing, bool(experiments)))
        return
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            live.update(_view(standing, bool(experiments)), refresh=True)
            time.sleep(PAUSE)
            standing = lab.status(*experiments, store=store)


def _document(standing: ExperimentStatus) -> dict[str, Any]:
    return {
        "experiment": standing.experiment,
        "runs": [
            {
                "id": run.member.id,
                "task": run.member.task,
                "limit": run.member.limit,
                "configuration": run.member.configuration,
                "kind": run.member.kind,
                **asdict(run.state),
                "metric": run.metric,
                "value": run.value,
                "run_of": run.member.instead.configuration
                if run.member.instead
                else run.member.configuration,
                "note": run.note,
            }
            for run in standing.runs
        ],
        "superseded": standing.superseded,
        "changed": list(standing.changed),
    }


def _view(standing: list[ExperimentStatus], in_detail: bool) -> RenderableType:
    if in_detail or (len(standing) == 1 and len(standing[0].runs) <= MOST_LISTED):
        return Group(*map(_runs, standing))
    table = Table("experiment", box=SIMPLE)
    for heading in STYLES:
        table.add_column(heading, justify="right")
    for each in standing:
        tally: Counter[str] = Counter(run.state.status for run in each.runs)
        table.add_row(
            each.experiment, *(Text(str(tally[word] or ""), style) for word, style in STYLES.items())
        )
    notes = [f"{each.experiment}: {sentence}" for each in standing for sentence in each.changed]
    return Group(table, *(Text(note, "dim") for note in notes))


def _runs(standing: ExperimentStatus) -> RenderableType:
    table = Table("run", "task", "configuration", title=standing.experiment, box=SIMPLE)
    for heading in ("state", "answers", "value"):
        table.add_column(heading, justify="right")
    table.add_column("where and why", overflow="fold")
    for run in standing.runs:
        member, state = run.member, run.state
        reached = f"{state.done}/{state.total}" if state.total and state.status != "done" else ""
        host = state.host if state.status == "running" else None
        where = "; ".join(filter(None, [" ".join(filter(None, [host, state.reason])), run.note]))
        label = task_label(member.task, member.limit)
        value = "" if run.value is None else percent(run.value, 1)
        table.add_row(
            member.id, label, member.configuration, status_text(state.status), reached, value, where
        )
    notes = list(standing.changed)
    if standing.superseded:
        notes.append(
            f"{counted(standing.superseded, 'run')} of an earlier text of the recipe: kept, but in no table."
        )
    return Group(table, *(Text(note, "dim") for note in notes))
