"""results.md: the report as text. The verdict comes first, then the tables, then what is unexpected."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from unmask.analysis.guards import Finding, guards_by_name
from unmask.analysis.words import MISSING, TIMES, in_percent, join_words
from unmask.report.document import Document, ExperimentPart, TaskPart, subjects_of
from unmask.report.lessons import lessons
from unmask.report.sentences import guards_in_short, key_findings, leading, observations, status
from unmask.report.stopped import STOPPED_NOTE, stopped_headings, stopped_rows
from unmask.report.tables import CURVE_HEADINGS, across, columns_of, curve_note, curve_rows

FEW_SUBJECTS = 12
"""Subtasks that are listed here; the page has all of them."""


def as_markdown(document: Document) -> str:
    """The whole text."""
    blocks = [*_head(document), *(block for part in document.parts for block in _part(part, document))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(document: Document) -> Iterator[str]:
    yield f"# Results: {escaped(document.title)}"
    if len(document.parts) > 1:
        yield f"**Date**: {document.made[:10]}"
        yield "## Summary of all experiments"
        for part in document.parts:
            yield "\n".join(f"**{escaped(sentence)}**" for sentence in leading(part))
        rows = across(document)
        headings = {
            "experiment": "Experiment",
            "task": "Task",
            "control": "Control",
            "accuracy": "Accuracy (%)",
            "best": "Best within budget",
            "drop": "Drop (points)",
            "gain": f"Gain ({TIMES})",
            "answer": "Verdict",
            "invalid": "Invalid",
            "warnings": "Warnings",
        }
        yield table(
            list(headings.values()), ([_shown(getattr(row, key)) for key in headings] for row in rows)
        )


def _shown(value: object) -> str:
    return MISSING if value is None else str(value)


def _part(part: ExperimentPart, document: Document) -> Iterator[str]:
    many = len(document.parts) > 1
    level = "###" if many else "##"
    if many:
        yield f"## {escaped(part.name)}"
    yield _status(part, document)
    if not many:
        yield from (f"**{escaped(sentence)}**" for sentence in leading(part))
    yield f"{level} Verdict"
    yield from _verdict(part)
    yield f"{level} Results"
    if not part.tasks and not stopped_rows(part.experiment.sequential):
        yield "There is no result yet."
    for task in part.tasks:
        yield from _task(task, level + "#")
    yield _meanings(part)
    yield from _stopped(part, level + "#")
    sentences = [f"**{escaped(name)}**: {escaped(sentence)}" for name, sentence in key_findings(part)]
    if sentences:
        yield f"{level} Key findings"
        yield numbered(sentences)
    yield f"{level} Unexpected observations"
    yield from _findings(observations(part))
    yield f"{level} Provenance"
    yield table(["What", "Value"], part.provenance)
    yield f"{level} Artifacts"
    own = ("This report with pictures and samples", "report.html")
    yield table(["Artifact", "Location"], [*part.artifacts, own])


def _status(part: ExperimentPart, document: Document) -> str:
    lines = [f"**Status**: {status(part)}", f"**Date**: {document.made[:10]}"]
    if part.hypothesis:
        lines.append(f"**Hypothesis**: {escaped(part.hypothesis)}")
    if part.expected:
        lines.append(f"**Expected**: {escaped(part.expected)}")
    lines.append(f"**Guards**: {guards_in_short(part)}")
    return "  \n".join(lines)


def _task(task: TaskPart, heading: str) -> Iterator[str]:
    rows = f", {task.rows:,} rows" if task.rows else ""
    yield f"{heading} {escaped(task.name)}{rows}"
    if task.metric:
        yield f"Metric: `{task.metric}`. Control: {_control(task)}."
    columns = columns_of(task)
    body = [[str(column.cell(line)) for column in columns] for line in task.lines]
    yield table([column.title for column in columns], body, [column.is_number for column in columns])
    if task.curves:
        yield f"{heading}# Accuracy under parallelism"
        yield table(CURVE_HEADINGS, curve_rows(task), [False, False, False, True])
        yield escaped(curve_note(task))
    yield from _subjects(task, heading)


def _stopped(part: ExperimentPart, heading: str) -> Iterator[str]:
    sequential = part.experiment.sequential
    rows = stopped_rows(sequential)
    if sequential is None or not rows:
        return
    yield f"{heading} Decided before the last row of {escaped(sequential.task)}"
    yield table(stopped_headings(sequential), rows, [False, *[True] * 5, False])
    yield escaped(STOPPED_NOTE)


def _control(task: TaskPart) -> str:
    if task.control is not None:
        return task.control.configuration
    state = "retracted" if task.control_retracted else "no result yet"
    return f"{task.awaited} ({state})" if task.awaited else "none"


def _meanings(part: ExperimentPart) -> str:
    """What the columns of all tables mean, once."""
    columns = [column for task in part.tasks for column in columns_of(task)[1:]]
    meanings = dict.fromkeys(f"{column.heading}: {column.explanation}" for column in columns)
    return f"Columns. {' '.join(map(escaped, meanings))}" if meanings else ""


def _subjects(task: TaskPart, heading: str) -> Iterator[str]:
    subjects = subjects_of(task)
    if not subjects:
        return
    names = [line.name for line in task.lines if line.entry.subtasks]
    yield f"{heading}# By subject (%)"
    shown = subjects[:FEW_SUBJECTS]
    body = [[subject.name, *(in_percent(subject.values.get(name)) for name in names)] for subject in shown]
    yield table(["Subject", *names], body, [False, *(True for _ in names)])
    if len(subjects) > FEW_SUBJECTS:
        yield f"{len(subjects) - FEW_SUBJECTS} more subjects are in report.html."


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        yield "The guards found nothing."
    guards = guards_by_name()
    ordered = sorted(findings, key=lambda finding: list(guards).index(finding.guard))
    for name, of_guard in groupby(ordered, key=lambda finding: finding.guard):
        same = list(of_guard)
        lines = [f"- **{guards[name].title}** (`{name}`)"]
        lines += [f"  - {finding.severity}: {escaped(finding.sentence)}" for finding in same]
        lines += [
            f"  - What to do: {escaped(advice)}"
            for advice in dict.fromkeys(finding.advice for finding in same)
        ]
        yield "\n".join(lines)


def _verdict(part: ExperimentPart) -> Iterator[str]:
    if part.verdict is None:
        given = "No criteria were given" if part.experiment.foreign else "The recipe has no criteria"
        advice = "; `--criteria RECIPE` names some" if part.experiment.foreign else ""
        yield f"{given}, so nothing is judged{advice}."
        return
    judged = part.verdict
    yield f"**{judged.answer.capitalize()}.** {escaped(judged.reason)}"
    yield "\n".join(f"- {escaped(sentence)}" for sentence in lessons(part))
    yield escaped(judged.basis)
    if judged.missing:
        yield "What it would take to decide:"
        yield "\n".join(f"- {escaped(sentence)}" for sentence in judged.missing)
    elif part.experiment.missing:
        yield f"Without a result: {escaped(join_words(str(run) for run in part.experiment.missing))}."


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool] | None = None
) -> str:
    """A table of markdown; numbers are set to the right."""
    marks = ["---:" if number else "---" for number in numbers or [False] * len(headings)]
    lines = [_row(headings), "|" + "|".join(marks) + "|", *(_row(row) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell or MISSING) for cell in cells) + " |"


def numbered(sentences: Sequence[str]) -> str:
    """A numbered list."""
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, start=1))


def escaped(text: str) -> str:
    """Text that stays text: one line, no table breaks, no HTML."""
    line = " ".join(text.split())
    for letter, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*")):
        line = line.replace(letter, instead)
    # Inside a word an underscore is only that.
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)
