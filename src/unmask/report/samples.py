"""Single samples that the page shows: those whose outcome flipped, and recordings of some for the denoising viewer.

Flips come with both answers, within a budget of characters. Where it ends, flips are only counted; `unmask compare` has
them all. Recordings that the store keeps are read, missing ones are made: decoding needs torch and a checkpoint, so it
happens in a process of its own; where that fails, the report goes on without the viewer and says why.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from unmask.analysis.likeness import acts
from unmask.analysis.samples import Comparison, Flip, compare
from unmask.analysis.table import ConfigurationResult
from unmask.errors import UnmaskError
from unmask.report.document import Document, ExperimentPart, TableLine, TaskPart
from unmask.store import RunFolder, Store
from unmask.store.attempt import read_samples

BUDGET = 12_000_000
"""Characters of all texts of a report."""
LONGEST_PROMPT, LONGEST_ANSWER = 1_600, 2_000


def flips_of(tasks: Iterable[TaskPart], budget: int = BUDGET) -> Iterator[dict[str, Any]]:
    """One entry for every task in which something flipped."""
    compared = [(task, _compared(task)) for task in tasks]
    many = sum(len(pairs) for _, pairs in compared)
    for task, pairs in compared:
        if pairs:
            yield _task(task, pairs, budget // max(1, many))


def _compared(task: TaskPart) -> list[tuple[list[str], Comparison]]:
    """The control beside every other set of answers in which some outcome differs."""
    control = task.control
    if control is None or control.samples is None or not control.samples.exists():
        return []
    pairs: list[tuple[list[str], Comparison]] = []
    for lines in _by_answers(task.lines):
        entry = lines[0].entry
        if entry is control or entry.samples is None or not entry.samples.exists():
            continue
        if control.answers is not None and entry.answers == control.answers:
            continue
        try:
            comparison = compare(control, entry)
        except UnmaskError:
            continue
        if comparison.flips:
            pairs.append(([line.name for line in lines], comparison))
    return pairs


def _by_answers(lines: Iterable[TableLine]) -> list[list[TableLine]]:
    by_answers: dict[str, list[TableLine]] = {}
    for line in lines:
        by_answers.setdefault(line.entry.answers or f"run {line.entry.run}", []).append(line)
    return list(by_answers.values())


def _task(task: TaskPart, pairs: list[tuple[list[str], Comparison]], share: int) -> dict[str, Any]:
    samples: list[list[str]] = []
    places: dict[str, int] = {}
    configurations = []
    for names, comparison in pairs:
        left, flips, bare = share, [], 0
        for flip in comparison.flips:
            cost = _cost(flip, flip.id in places)
            if cost > left:
                bare += 1
                continue
            left -= cost
            place = places.get(flip.id)
            if place is None:
                place = places[flip.id] = len(samples)
                samples.append(
                    [
                        flip.id,
                        shortened(flip.prompt, LONGEST_PROMPT),
                        shortened(flip.target, LONGEST_ANSWER),
                        shortened(flip.first, LONGEST_ANSWER),
                    ]
                )
            flips.append([place, int(flip.gained), shortened(flip.second, LONGEST_ANSWER)])
        configurations.append(
            {
                "names": names,
                "run": comparison.second.run,
                "rows": comparison.difference.count,
                "changed": comparison.changed,
                "total": len(comparison.flips),
                "left_out": bare,
                "flips": flips,
            }
        )
    return {
        "key": task.key,
        "experiment": task.group.experiment.name,
        "task": task.name,
        "control": task.control.configuration if task.control else "",
        "control_run": task.control.run if task.control else "",
        "samples": samples,
        "configurations": configurations,
    }


def _cost(flip: Flip, known: bool) -> int:
    shared = 0 if known else min(len(flip.prompt), LONGEST_PROMPT) + min(len(flip.first), LONGEST_ANSWER)
    return shared + min(len(flip.second), LONGEST_ANSWER) + 60


def shortened(text: str, longest: int) -> str:
    """Beginning and end of a text that is too long: the question stands at the end, the result too."""
    if len(text) <= longest:
        return text
    begin = longest // 3
    left_out = len(text) - longest
    return f"{text[:begin]}\n[… {left_out:,} characters left out …]\n{text[-(longest - begin) :]}"


SMALL = 1_000_000_000
"""Bytes of weights up to which a report loads a checkpoint without being asked to."""
USUAL = 2
"""Samples that are shown where nobody says how many."""


@dataclass(frozen=True, slots=True)
class RecordingChoice:
    """Samples to be recorded under the control and one other configuration."""

    task: TaskPart
    control: ConfigurationResult
    other: ConfigurationResult
    samples: tuple[str, ...]


def with_recordings(
    document: Document, store: Store, count: int | None, notify: Callable[[str], None] = lambda _: None
) -> Document:
    """The document with recordings of `count` samples a task; None takes two where the checkpoint is small."""
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
        notify("Replaying samples for the denoising viewer ...")
        note = _make(missing, SMALL if count is None else None)
    recordings = tuple(recording for choice in choices for recording in _read(store, choice))
    return replace(document, recordings=recordings, recording_note=note)


def choose(part: ExperimentPart, count: int) -> RecordingChoice | None:
    """Flipped samples of the generating task that the criteria are about, or of the first one."""
    if part.experiment.foreign or count < 1:
        return None
    success = part.experiment.success
    tasks = [task for task in part.tasks if task.generates and task.control is not None]
    tasks.sort(key=lambda task: success is None or task.group.task != success.task)
    for task in tasks:
        choice = _of_task(task, count)
        if choice is not None:
            return choice
    return None


def _of_task(task: TaskPart, count: int) -> RecordingChoice | None:
    """The configuration that loses least of those that flip enough; without any flip the first that reuses."""
    control = task.control
    acting = [line for line in task.lines if acts(line.entry) and _has_rows(line.entry)]
    if control is None or not _has_rows(control) or not acting:
        return None
    acting.sort(key=lambda line: line.loss.value if line.loss else 0.0)
    choices: list[tuple[ConfigurationResult, list[str]]] = []
    for line in acting:
        flips = sorted(compare(control, line.entry).flips, key=lambda flip: flip.gained)
        choices.append((line.entry, [flip.id for flip in flips[:count]]))
        if len(flips) >= count:
            break
    entry, samples = max(choices, key=lambda pair: len(pair[1]))
    if samples:
        return RecordingChoice(task, control, entry, tuple(samples))
    names = [sample.id for sample in read_samples(control.samples)] if control.samples else []
    return RecordingChoice(task, control, acting[0].entry, tuple(names[:count])) if names else None


def _has_rows(entry: ConfigurationResult) -> bool:
    return entry.samples is not None and entry.samples.exists() and entry.run is not None


def _missing(store: Store, choices: Iterable[RecordingChoice]) -> list[tuple[str, list[str]]]:
    found = []
    for choice in choices:
        for entry in (choice.control, choice.other):
            run = _run(store, entry)
            samples = [sample for sample in choice.samples if run.recording(sample) is None]
            if samples:
                found.append((str(run.folder), samples))
    return found


def _make(missing: list[tuple[str, list[str]]], largest: int | None) -> str:
    """Start the process that decodes; returns a sentence for the page if it fails."""
    request = json.dumps({"runs": missing, "largest": largest})
    command = [sys.executable, "-m", "unmask.evaluation.recordings"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"Some samples could not be replayed: {lines[-1] if lines else 'the process ended early.'}"


def _read(store: Store, choice: RecordingChoice) -> Iterable[dict[str, Any]]:
    for sample in choice.samples:
        panels = []
        for entry in (choice.control, choice.other):
            recording = _run(store, entry).recording(sample)
            if recording is not None:
                panels.append({**recording, "configuration": entry.configuration})
        if panels:
            yield {
                "sample": sample,
                "experiment": choice.task.group.experiment.name,
                "prompt": panels[0]["prompt"],
                "target": panels[0].get("target") or "",
                "panels": [_panel(panel) for panel in panels],
            }


def _panel(recording: dict[str, Any]) -> dict[str, Any]:
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
    return {name: recording[name] for name in kept} | (
        {"end": recording["end"]} if "end" in recording else {}
    )


def _run(store: Store, entry: ConfigurationResult) -> RunFolder:
    if entry.samples is None:
        raise UnmaskError(f"{entry.configuration} has no rows on disk, so nothing can be replayed.")
    return RunFolder((store.runs_folder / entry.samples.parents[2].name).resolve())
