"""What is left of a decoding: JSON for programs, a summary line for people, files that are never half-written."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.cli.decoding import Decoded
from unmask.errors import UnmaskError
from unmask.store.files import write_atomically

__all__ = ["answers", "as_lines", "check_writable", "measured", "summary", "write_atomically"]


def answers(decoded: Decoded) -> list[dict[str, Any]]:
    """One JSON object for each answer."""
    return [
        {
            "id": item.id,
            "text": generation.text,
            "ids": generation.ids,
            "finish_reason": generation.finish_reason,
            "prompt_tokens": len(item.request.prompt),
            "batch_size": generation.batch_size,
            "ledger": generation.ledger.as_dict(),
        }
        for item, generation in zip(decoded.items, decoded.generations, strict=True)
    ]


def measured(decoded: Decoded) -> dict[str, Any]:
    """Totals over all answers."""
    return {
        "tokens": decoded.tokens,
        "seconds": decoded.seconds,
        "tokens_per_second": decoded.tokens_per_second,
        "steps": decoded.steps(),
    }


def summary(decoded: Decoded) -> str:
    """One line: tokens, speed, forwards by kind, how the answers ended."""
    steps = decoded.steps()
    kinds = ", ".join(f"{count} {kind}" for kind, count in steps.items() if count)
    reasons = [generation.finish_reason for generation in decoded.generations]
    ends = ", ".join(
        reason if len(reasons) == 1 else f"{reasons.count(reason)} {reason}"
        for reason in dict.fromkeys(reasons)
    )
    return (
        f"{decoded.tokens} tokens in {decoded.seconds:.2f} s ({decoded.tokens_per_second:.1f} tokens/s), "
        f"{sum(steps.values())} forwards ({kinds}), finished by {ends}"
    )


def as_lines(values: Iterable[dict[str, Any]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def check_writable(path: Path, option: str = "--output") -> None:
    """Refuse an output that could not be written after all the work."""
    if path.is_dir():
        raise UnmaskError(f"{path} is a folder; {option} takes the name of a file.")
    if not os.access(path.parent, os.W_OK):
        raise UnmaskError(f"{path.parent} is no folder that can be written to; choose another {option}.")
