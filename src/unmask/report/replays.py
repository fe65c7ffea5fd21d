"""Which samples the denoising viewer shows, and their replays: kept ones are read, missing ones are made.

Decoding needs torch and a checkpoint, so it happens in a process of its own; where that fails, the report goes on
without the viewer and says why.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from unmask.analysis.comparison import compare
from unmask.analysis.likeness import acts
from unmask.analysis.records import Entry
from unmask.errors import UnmaskError
from unmask.report.document import Document, ExperimentPart, TaskPart
from unmask.store import RunFolder, Store
from unmask.store.attempt import read_samples

SMALL = 1_000_000_000
"""Bytes of weights up to which a report loads a checkpoint unasked."""
USUAL = 2
"""Samples that are shown where nobody says how many."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Samples to be replayed under the control and one other configuration."""

    task: TaskPart
    control: Entry
    other: Entry
    samples: tuple[str, ...]


def with_replays(
    document: Document, store: Store, count: int | None, told: Callable[[str], None] = lambda _: None
) -> Document:
    """The document with replays of `count` samples a task; None takes two where the checkpoint is small."""
    choices = [
        choice
        for part in document.parts
        if (choice := choose(part, USUAL if count is None else count)) is not None
    ]
    if not choices:
        return document
    missing = _missing(store, choices)
    note = ""
    if missing:
        told("Replaying samples for the denoising viewer ...")
        note = _make(missing, SMALL if count is None else None)
    found = tuple(one for choice in choices for one in _read(store, choice))
    return replace(document, replays=found, replay_note=note)


def choose(part: ExperimentPart, count: int) -> Choice | None:
    """Flipped samples of the generating task that the criteria are about, or of the first one."""
    if part.about.foreign or count < 1:
        return None
    success = part.about.success
    tasks = [task for task in part.tasks if task.generates and task.control is not None]
    tasks.sort(key=lambda task: success is None or task.group.task != success.task)
    for task in tasks:
        choice = _of_task(task, count)
        if choice is not None:
            return choice
    return None


def _of_task(task: TaskPart, count: int) -> Choice | None:
    """The configuration that loses least of those that flip enough; without any flip the first that reuses."""
    control = task.control
    acting = [line for line in task.lines if acts(line.entry) and _has_rows(line.entry)]
    if control is None or not _has_rows(control) or not acting:
        return None
    acting.sort(key=lambda line: line.loss.value if line.loss else 0.0)
    found: list[tuple[Entry, list[str]]] = []
    for line in acting:
        flips = sorted(compare(control, line.entry).flips, key=lambda flip: flip.gained)
        found.append((line.entry, [flip.id for flip in flips[:count]]))
        if len(flips) >= count:
            break
    entry, samples = max(found, key=lambda pair: len(pair[1]))
    if samples:
        return Choice(task, control, entry, tuple(samples))
    names = [sample.id for sample in read_samples(control.samples)] if control.samples else []
    return Choice(task, control, acting[0].entry, tuple(names[:count])) if names else None


def _has_rows(entry: Entry) -> bool:
    return entry.samples is not None and entry.samples.exists() and entry.run is not None


def _missing(store: Store, choices: Iterable[Choice]) -> list[tuple[str, list[str]]]:
    found = []
    for choice in choices:
        for entry in (choice.control, choice.other):
            run = _run(store, entry)
            samples = [sample for sample in choice.samples if run.recording(sample) is None]
            if samples:
                found.append((str(run.folder), samples))
    return found


def _make(missing: list[tuple[str, list[str]]], largest: int | None) -> str:
    """Start the process that decodes; what it complains of is the note of the report."""
    request = json.dumps({"runs": missing, "largest": largest})
    command = [sys.executable, "-m", "unmask.evaluation.recordings"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"Some samples could not be replayed: {lines[-1] if lines else 'the process ended early.'}"


def _read(store: Store, choice: Choice) -> Iterable[dict[str, Any]]:
    for sample in choice.samples:
        panels = []
        for entry in (choice.control, choice.other):
            found = _run(store, entry).recording(sample)
            if found is not None:
                panels.append({**found, "configuration": entry.configuration})
        if panels:
            yield {
                "sample": sample,
                "experiment": choice.task.group.experiment.name,
                "prompt": panels[0]["prompt"],
                "target": panels[0].get("target") or "",
                "panels": [_panel(panel) for panel in panels],
            }


def _panel(found: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "configuration",
        "correct",
        "same",
        "prompt_tokens",
        "block_size",
        "layers",
        "threshold",
        "finish",
        "steps",
    )
    return {name: found[name] for name in kept}


def _run(store: Store, entry: Entry) -> RunFolder:
    if entry.samples is None:
        raise UnmaskError(f"{entry.configuration} has no rows on disk, so nothing can be replayed.")
    return RunFolder((store.runs_folder / entry.samples.parents[2].name).resolve())
