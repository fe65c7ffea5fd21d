"""report.html: one file without any address in it. Templates, style and scripts are the package's own files.

Everything that a model or a recipe wrote is text: templates escape it, and the data for the scripts cannot end the
element it stands in. Scripts other than the one written here are refused by the page itself.
"""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from unmask.analysis.gains import GAINED
from unmask.analysis.guards import guards_by_name
from unmask.analysis.words import count, duration, in_percent, level_in_percent
from unmask.cost.work import USUAL_KINDS
from unmask.report.document import Document, ExperimentPart, TaskPart, subjects_of
from unmask.report.figures import (
    KINDS,
    frontier_plot,
    ledger_bars,
    subject_bars,
    timeline,
    work_plot,
)
from unmask.report.heat_maps import heat_maps
from unmask.report.inline import embedded, joined, script_hash
from unmask.report.lessons import judged_task, lessons
from unmask.report.sentences import guards_in_short, key_findings, leading, observations, status
from unmask.report.stopped import STOPPED_NOTE, stopped_headings, stopped_rows
from unmask.report.tables import CURVE_HEADINGS, across, columns_of, curve_note, curve_rows

STYLES = ("tokens", "layout", "tables", "figures", "samples", "viewer", "print")
SCRIPTS = ("base", "theme", "tips", "tables", "words", "flips", "viewer_model", "viewer_view", "viewer")


def as_page(document: Document) -> str:
    """The whole page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("unmask.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=in_percent, count=count, duration=duration, css_class=css_class)
    script = joined("unmask.report", "js", SCRIPTS)
    return environment.get_template("page.html").render(
        document=document,
        parts=[_part(part) for part in document.parts],
        across=across(document) if len(document.parts) > 1 else [],
        guards=guards_by_name(),
        style=Markup(joined("unmask.report", "css", STYLES)),
        script=Markup(script),
        script_hash=script_hash(script),
        data=embedded({"flips": document.flips, "replays": document.recordings}),
    )


def css_class(answer: str) -> str:
    """The class under which the style sheet knows a verdict's answer."""
    return answer.replace(" ", "-")


def _part(part: ExperimentPart) -> dict[str, Any]:
    task = judged_task(part)
    return {
        "data": part,
        "status": status(part),
        "leading": leading(part),
        "lessons": lessons(part),
        "task": task,
        "level": level_in_percent(task.comparisons.level) if task else "",
        "guards": guards_in_short(part),
        "key_findings": _by_task(key_findings(part)),
        "frontier": next(iter(_frontiers(task)), None) if task else None,
        "tasks": [_task(task, part) for task in part.tasks],
        "stopped": stopped_rows(part.experiment.sequential),
        "stopped_headings": stopped_headings(part.experiment.sequential)
        if part.experiment.sequential
        else (),
        "stopped_note": STOPPED_NOTE,
        "timeline": timeline(part.attempts),
        "findings": _findings(part),
    }


Frontier = tuple[str, Markup, bool]
"""By what it is, the picture, and whether it shows where the criteria want a configuration."""


def _frontiers(task: TaskPart) -> list[Frontier]:
    """All of a task; the first one of the task that was judged stands beside the verdict, and nowhere else."""
    plots = [(GAINED[by], frontier_plot(task, points)) for by, points in task.planes.items()]
    return [(name, plot, 'class="goal"' in plot) for name, plot in plots if plot is not None]


def _task(task: TaskPart, part: ExperimentPart) -> dict[str, Any]:
    columns = columns_of(task)
    subjects = subjects_of(task)
    return {
        "data": task,
        "columns": columns,
        "rows": [(line, [(column, column.cell(line)) for column in columns]) for line in task.lines],
        "frontiers": _frontiers(task)[1 if task is judged_task(part) else 0 :],
        "level": level_in_percent(task.comparisons.level),
        "work": work_plot(task),
        "curves": curve_rows(task),
        "curve_headings": CURVE_HEADINGS,
        "curve_note": curve_note(task) if task.curves else "",
        "heat_maps": heat_maps(task),
        "subjects": subject_bars(task, subjects),
        "ledger": ledger_bars(task),
        "kinds": [
            kind for kind in KINDS if kind in USUAL_KINDS or any(kind in each.by_kind for each in task.lines)
        ],
        "ledger_rows": [(line.name, line.by_kind) for line in task.lines if line.by_kind],
    }


def _by_task(sentences: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, sentence in sentences:
        found.setdefault(name, []).append(sentence)
    return list(found.items())


def _findings(part: ExperimentPart) -> list[tuple[str, list[Any]]]:
    """Findings by guard, the worst guard first."""
    found: dict[str, list[Any]] = {}
    for finding in observations(part):
        found.setdefault(finding.guard, []).append(finding)
    return list(found.items())
