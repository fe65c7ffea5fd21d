"""Gives lm-eval the rows that lie beside its task files, wherever the package is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load(file: str, **_metadata: object) -> dict[str, Any]:
    """The test split of one task; lm-eval passes the task's metadata too."""
    import datasets  # lm-eval brings it; nothing else of the package needs it

    rows = datasets.load_dataset("json", data_files=str(Path(__file__).parent / file), split="train")
    return {"test": rows}
