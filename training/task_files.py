"""Writes the held-out rows of the tasks that ship with the package, from a seed that training never uses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from training.curriculum.choice import Choice, draw_choice, draw_text_choice
from training.curriculum.stories import draw_problem

TASK_SEED: Final = 990_017
ROWS: Final = 600

Row = dict[str, Any]


def arith_row(rng: random.Random, largest: int) -> Row:
    """A word problem with its chain in one wording, drawn apart so that it has no influence on later problems."""
    problem = draw_problem(rng, largest, "held_out")
    return {
        "question": problem.question,
        "answer": problem.chain(random.Random(f"{TASK_SEED}/{problem.question}")),
        "canonical": problem.canonical,
        "largest": largest,
        "steps": len(problem.steps),
    }


def choice_row(choice: Choice) -> Row:
    """A prompt with four options and the index of the right one."""
    return {
        "prompt": choice.prompt,
        "options": list(choice.options),
        "answer": choice.correct,
        "kind": choice.kind,
        "canonical": choice.canonical,
        "largest": choice.largest,
    }


TASK_FILES: Final[dict[str, tuple[Callable[[random.Random, int], Row], int]]] = {
    "arith": (arith_row, 99),
    "arith_20": (arith_row, 20),
    "arith_40": (arith_row, 40),
    "arith_60": (arith_row, 60),
    "choice": (lambda rng, largest: choice_row(draw_choice(rng, largest, "held_out")), 99),
    "choice_text": (lambda rng, largest: choice_row(draw_text_choice(rng, largest, "held_out")), 99),
}
"""Task file -> how a row is drawn, and the largest number in it."""


def task_rows(name: str, count: int = ROWS) -> list[Row]:
    """The rows of one task file, no two of them equal."""
    draw, largest = TASK_FILES[name]
    rng = random.Random(f"{TASK_SEED}/{name}")
    rows: dict[str, Row] = {}
    while len(rows) < count:
        row = draw(rng, largest)
        rows.setdefault(json.dumps(row), row)
    return list(rows.values())


def write_task_files(folder: Path) -> None:
    """Write every task file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TASK_FILES:
        lines = "".join(json.dumps(row) + "\n" for row in task_rows(name))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
