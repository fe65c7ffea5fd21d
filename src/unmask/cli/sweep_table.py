"""Tables of a sweep for people: what is planned, where it stands, what came out."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unmask.launch.todo import Item
from unmask.spec.sweep import task_label
from unmask.store.index import IndexRecord

PLAIN_WIDTH = 140
"""Columns where no terminal says otherwise."""
STYLES = {
    "done": "green",
    "running": "cyan",
    "pending": "blue",
    "interrupted": "yellow",
    "failed": "red",
    "retracted": "magenta",
    "missing": "dim",
}


def console() -> Console:
    """A console that is wide enough for a table in a file too."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found.width = PLAIN_WIDTH
    return found


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(status, STYLES[status])


def counts(items: Iterable[Item]) -> str:
    """How many runs stand where."""
    statuses = [item.state.status for item in items]
    return ", ".join(f"{statuses.count(status)} {status}" for status in STYLES if status in statuses)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def results_table(items: Sequence[Item], records: dict[str, IndexRecord], title: str) -> Table:
    """What came out of the runs that are done; a retracted result has a line, but no figures."""
    from unmask.analysis.statistics import wilson

    table = Table("task", "configuration", title=title, box=SIMPLE)
    for heading in ("value", "95 % interval", "rows", "work skipped", "speed-up", "state"):
        table.add_column(heading, justify="right")
    sound = {name: record for name, record in records.items() if record.retraction is None}
    speeds = _speedups(items, sound)
    for item in items:
        if item.planned.kind == "timing":
            continue
        record = sound.get(item.run.name)
        label = task_label(item.planned.task, item.planned.limit)
        speed = _speed(speeds, item)
        if record is None or record.value is None:
            table.add_row(
                label, item.planned.configuration, "", "", "", "", speed, status_text(item.state.status)
            )
            continue
        rows = record.rows or 0
        interval = wilson(record.value * rows, rows)
        skipped = max((part.reuse_fraction or 0.0 for part in record.effect.values()), default=0.0)
        table.add_row(
            label,
            item.planned.configuration,
            f"{record.value:.1%}",
            f"{interval.low:.1%} to {interval.high:.1%}",
            str(rows),
            f"{skipped:.1%}",
            speed,
            status_text(item.state.status),
        )
    return table


Speeds = dict[tuple[str, str], dict[int, str]]
"""Of a task and a configuration, by the number of prompts that were timed."""


def _speedups(items: Sequence[Item], records: dict[str, IndexRecord]) -> Speeds:
    """Speed-ups of timing runs."""
    found: Speeds = {}
    for item in items:
        record = records.get(item.run.name)
        if item.planned.kind != "timing" or record is None:
            continue
        for name, timing in record.timings.items():
            if timing.speedup is not None and timing.speedup.median is not None:
                by_prompts = found.setdefault((item.planned.task, name), {})
                by_prompts[item.planned.limit or 0] = f"{timing.speedup.median:.2f}x"
    return found


def _speed(speeds: Speeds, item: Item) -> str:
    """The timing of the most prompts."""
    by_prompts = speeds.get((item.planned.task, item.planned.configuration), {})
    return by_prompts[max(by_prompts)] if by_prompts else ""
