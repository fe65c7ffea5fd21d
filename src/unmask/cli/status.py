"""`unmask status`: where the runs of a store stand, at once and without torch."""

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
from unmask.analysis.words import counted
from unmask.cli.options import store_option
from unmask.cli.screen import STYLES, console, status_text
from unmask.lab.runs import ExperimentStatus, open_store
from unmask.spec.sweep import task_label

PAUSE = 2.0
MOST_LISTED = 500
"""Runs of a store's only experiment that are listed although it was not named."""


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
        screen.print(
            f"There is no experiment in {open_store(store).root} yet; `unmask run RECIPE` begins one."
        )
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
    for heading in ("state", "answers"):
        table.add_column(heading, justify="right")
    table.add_column("where and why", overflow="fold")
    for run in standing.runs:
        member, state = run.member, run.state
        reached = f"{state.done}/{state.total}" if state.total and state.status != "done" else ""
        where = " ".join(filter(None, [state.host if state.status == "running" else None, state.reason]))
        label = task_label(member.task, member.limit)
        table.add_row(member.id, label, member.configuration, status_text(state.status), reached, where)
    notes = list(standing.changed)
    if standing.superseded:
        notes.append(
            f"{counted(standing.superseded, 'run')} of an earlier text of the recipe: kept, but in no table."
        )
    return Group(table, *(Text(note, "dim") for note in notes))
