"""`unmask status`: where the runs of a store stand, at once and without torch."""

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unmask.cli.queue import job_words
from unmask.cli.sweep_options import store_option
from unmask.cli.sweep_table import STYLES, console, status_text
from unmask.errors import UnmaskError
from unmask.spec.sweep import task_label
from unmask.store.experiments import Experiment, experiment_names, read_experiment
from unmask.store.state import State, states
from unmask.store.store import Store

PAUSE = 2.0


@click.command(short_help="Where runs stand.")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@store_option
@click.option("--watch", is_flag=True, help="Keep it on the screen until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(experiments: tuple[str, ...], store: Path | None, watch: bool, as_json: bool) -> None:
    """Show which runs are done, running, pending or failed, and why.

    Without a name every experiment is summed up in a line; with one its runs are listed. Statuses are
    computed from what lies on disk and, for submitted runs, from what SLURM says.

    \b
    Examples:
      unmask status
      unmask status 00_baseline_embedded --watch
      unmask status 00_baseline --json
    """
    place = Store.at(store)
    names = _chosen(place, experiments)
    if as_json:
        found = dict(states(place, job_words(place, names)))
        click.echo(json.dumps([_document(place, name, found) for name in names]))
        return
    screen = console()
    if not names:
        screen.print(f"There is no experiment in {place.root} yet; `unmask run RECIPE` begins one.")
        return
    if not watch:
        screen.print(_view(place, names, bool(experiments)))
        return
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            live.update(_view(place, names, bool(experiments)), refresh=True)
            time.sleep(PAUSE)


def _chosen(store: Store, wanted: tuple[str, ...]) -> list[str]:
    known = experiment_names(store)
    for name in wanted:
        if name not in known:
            raise UnmaskError(
                f"There is no experiment {name} in {store.root}; there are {', '.join(known) or 'none'}."
            )
    return list(wanted) or known


def _experiment(store: Store, name: str) -> Experiment:
    found = read_experiment(store, name)
    if found is None:
        raise UnmaskError(f"There is no experiment {name} in {store.root}.")
    return found


def _document(store: Store, name: str, found: dict[str, State]) -> dict[str, object]:
    experiment = _experiment(store, name)
    return {
        "experiment": name,
        "runs": [
            {
                "id": member.id,
                "task": member.task,
                "limit": member.limit,
                "configuration": member.configuration,
                "kind": member.kind,
                **asdict(found.get(member.folder, State("missing"))),
            }
            for member in experiment.members
        ],
        "superseded": len(experiment.superseded),
    }


def _view(store: Store, names: list[str], in_detail: bool) -> RenderableType:
    found = dict(states(store, job_words(store, names)))
    if in_detail or len(names) == 1:
        return Group(*(_runs(_experiment(store, name), found) for name in names))
    table = Table("experiment", box=SIMPLE)
    for heading in STYLES:
        table.add_column(heading, justify="right")
    for name in names:
        members = _experiment(store, name).members
        tally: Counter[str] = Counter(found.get(member.folder, State("missing")).status for member in members)
        table.add_row(name, *(Text(str(tally[each] or ""), style) for each, style in STYLES.items()))
    return table


def _runs(experiment: Experiment, found: dict[str, State]) -> RenderableType:
    table = Table("run", "task", "configuration", title=experiment.name, box=SIMPLE)
    for heading in ("state", "answers"):
        table.add_column(heading, justify="right")
    table.add_column("where and why", overflow="fold")
    for member in experiment.members:
        state = found.get(member.folder, State("missing"))
        reached = f"{state.done}/{state.total}" if state.total and state.status != "done" else ""
        where = " ".join(filter(None, [state.host if state.status == "running" else None, state.reason]))
        label = task_label(member.task, member.limit)
        table.add_row(member.id, label, member.configuration, status_text(state.status), reached, where)
    if not experiment.superseded:
        return table
    many = len(experiment.superseded)
    return Group(
        table, Text(f"{many} runs of an earlier text of the recipe are kept and enter no table.", "dim")
    )
