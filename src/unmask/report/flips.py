"""Samples whose outcome flipped, for the page: both answers of each, within a budget of characters.

Configurations that answered alike share an entry. Where the budget ends a flip keeps its name and loses its texts;
`unmask compare` has them all.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from unmask.analysis.comparison import Comparison, Flip, compare
from unmask.errors import UnmaskError
from unmask.report.document import Line, TaskPart

BUDGET = 12_000_000
"""Characters of all texts of a report."""
LONGEST_PROMPT, LONGEST_ANSWER = 1_600, 2_000


def flips_of(tasks: Iterable[TaskPart], budget: int = BUDGET) -> Iterator[dict[str, Any]]:
    """One entry for every task in which something flipped."""
    found = [(task, _compared(task)) for task in tasks]
    many = sum(len(pairs) for _, pairs in found)
    for task, pairs in found:
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
            found = compare(control, entry)
        except UnmaskError:
            continue
        if found.flips:
            pairs.append(([line.name for line in lines], found))
    return pairs


def _by_answers(lines: Iterable[Line]) -> list[list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.entry.answers or f"run {line.entry.run}", []).append(line)
    return list(found.values())


def _task(task: TaskPart, pairs: list[tuple[list[str], Comparison]], share: int) -> dict[str, Any]:
    samples: list[list[str]] = []
    places: dict[str, int] = {}
    configurations = []
    for names, found in pairs:
        left, flips, bare = share, [], 0
        for flip in found.flips:
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
                "run": found.second.run,
                "rows": found.difference.count,
                "changed": found.changed,
                "total": len(found.flips),
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
