"""Multiple-choice questions as lm-eval puts them to a model: an MMLU subject's, or invented ones in its layout."""

import json
import random
from pathlib import Path
from typing import Any

import unmask
from unmask.engine.score import ScoreRequest

INVENTED = 40


def questions(
    engine: unmask.Engine, subject: str, data: Path, limit: int | None = None
) -> list[ScoreRequest]:
    """The requests that lm-eval makes of a subject's rows, in the model's tokens."""
    from unmask.evaluation.harness import Options, collect
    from unmask.evaluation.lm import UnmaskLM
    from unmask.evaluation.task_data import load_tasks

    adapter = UnmaskLM(engine=engine)
    _, asked = collect(adapter, load_tasks([f"mmlu_{subject}"], data, limit), Options(limit=limit))
    return [ScoreRequest(*adapter.encoded(*request.args)) for request in asked]


def write_invented(folder: Path, subject: str, count: int = INVENTED) -> Path:
    """Questions in MMLU's layout, as long as real ones."""
    draw = random.Random(0)
    for split, rows in (("dev", 5), ("test", count)):
        file = folder / f"mmlu/{split}/{subject}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(_invented_row(draw, subject)) + "\n" for _ in range(rows)))
    return folder


def _invented_row(draw: random.Random, subject: str) -> dict[str, Any]:
    words = ["bone", "carries", "the", "blood", "which", "of", "these", "nerve", "lies", "below", "left"]
    return {
        "question": " ".join(draw.choices(words, k=draw.randint(6, 40))) + "?",
        "subject": subject,
        "choices": [" ".join(draw.choices(words, k=draw.randint(1, 8))) for _ in range(4)],
        "answer": draw.randrange(4),
    }
