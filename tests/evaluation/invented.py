"""A folder of benchmark data in the documented layout, with a few invented rows in each schema."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.evaluation.catalogue import GPQA_SETS, MATH_SUBJECTS, sources

MMLU_ROWS = 2


def write_data(folder: Path) -> Path:
    """Write every file that a task may ask for."""
    _write(folder / "gsm8k/test.jsonl", (_sum_row(number) for number in range(3)))
    _write(folder / "gsm8k/train.jsonl", (_sum_row(number) for number in range(10, 18)))
    for subject in MATH_SUBJECTS.values():
        _write(folder / f"math/{subject}.jsonl", (_problem(number) for number in range(2)))
    for which in GPQA_SETS:
        _write(folder / f"gpqa/gpqa_{which}.jsonl", (_expert_row(number) for number in range(8)))
    _write(folder / "humaneval/HumanEval.jsonl", [_function_row()])
    _write(folder / "mbpp/test.jsonl", [_program_row()])
    _write(folder / "ifeval/input_data.jsonl", _instructions())
    for place in {file for source in sources().values() for file in source.files.values() if "mmlu" in file}:
        _write(folder / place, (_choice_row(Path(place).stem, number) for number in range(MMLU_ROWS)))
    (folder / "nltk_data/tokenizers/punkt_tab").mkdir(parents=True)  # none of the rows counts sentences
    return folder


def _sum_row(number: int) -> dict[str, Any]:
    total = 3 + number
    return {
        "question": f"Ida has 3 pears and finds {number}. How many pears has she?",
        "answer": f"Ida has 3+{number}=<<3+{number}={total}>>{total} pears.\n#### {total}",
    }


def _problem(number: int) -> dict[str, Any]:
    return {
        "problem": f"What is $2\\cdot{number + 2}$?",
        "solution": f"Doubling gives $\\boxed{{{2 * number + 4}}}$.",
        "level": "Level 1",
        "type": "Algebra",
    }


def _expert_row(number: int) -> dict[str, Any]:
    return {
        "Question": f"Which letter has number {number} in this list?",
        "Correct Answer": f"right {number}",
        "Incorrect Answer 1": f"left {number}",
        "Incorrect Answer 2": f"up {number}",
        "Incorrect Answer 3": f"down {number}",
    }


def _choice_row(subject: str, number: int) -> dict[str, Any]:
    choices = [f"{subject} {letter}" for letter in "wxyz"]
    return {
        "question": f"Which choice is number {number}?",
        "subject": subject,
        "choices": choices,
        "answer": number % 4,
    }


def _function_row() -> dict[str, Any]:
    return {
        "task_id": "HumanEval/0",
        "prompt": 'def double(n):\n    """Twice the number."""\n',
        "entry_point": "double",
        "canonical_solution": "    return 2 * n\n",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
    }


def _program_row() -> dict[str, Any]:
    return {
        "task_id": 11,
        "text": "Write a function to add one.",
        "code": "def more(n):\n    return n + 1",
        "test_setup_code": "",
        "test_list": ["assert more(1) == 2", "assert more(2) == 3", "assert more(-1) == 0"],
        "challenge_test_list": [],
    }


def _instructions() -> list[dict[str, Any]]:
    return [
        {
            "key": 1,
            "prompt": "Name a fruit without commas.",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"keywords": None}],
        },
        {
            "key": 2,
            "prompt": "Name a pear without commas.",
            "instruction_id_list": ["keywords:existence", "punctuation:no_comma"],
            "kwargs": [{"keywords": ["pear"]}, {"keywords": None}],
        },
    ]


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
