"""What Unmask is for, in a minute: watch an answer being unmasked, then see what reuse costs and buys.

Runs on the embedded model, a small block-diffusion model that ships with the package. Every line of the
table answers the same held-out problems; accuracy has its 95 % interval (Wilson), work is counted.

    python examples/demo.py --problems 64
"""

import argparse
import json
import re
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import unmask
from unmask.cli import app
from unmask.cost import total_price

BOTH = ["sub", "block"]
CONFIGURATIONS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "baseline": ({}, None),
    "threshold 0.7": ({"threshold": 0.7}, None),
    "output, k=2": ({}, {"kind": "layer_reuse", "k": 2, "unit": "output"}),
    "output, k=3": ({}, {"kind": "layer_reuse", "k": 3, "unit": "output"}),
    "residual, k=2": ({}, {"kind": "layer_reuse", "k": 2, "unit": "residual", "on": BOTH}),
    "TRIM, keep=0": ({}, {"kind": "trim", "keep": 0.0}),
}


def problems(count: int) -> list[dict[str, str]]:
    file = Path(unmask.__file__).parent / "assets" / "tasks" / "arith.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()[:count]]


def prompt(problem: dict[str, str]) -> str:
    return f"Question: {problem['question']}\nAnswer:"


def is_right(problem: dict[str, str], text: str | None) -> bool:
    given, wanted = (re.search(r"#### (-?\d+)", part or "") for part in (text, problem["answer"]))
    return bool(given and wanted and given[1] == wanted[1])


def wilson(right: int, count: int) -> tuple[float, float]:
    z, share = 1.96, right / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return centre - spread, centre + spread


def measure(engine: unmask.Engine, rows: list[dict[str, str]]) -> list[tuple[str, int, int, float]]:
    """Name, right answers, forwards and FLOPs of every configuration."""
    found = []
    for name, (decode, policy) in track(CONFIGURATIONS.items(), description="Answering", transient=True):
        settings = {"max_new_tokens": 160, **decode}
        answers = engine.generate([prompt(row) for row in rows], settings, policy, batch_size=16)
        right = sum(is_right(row, answer.text) for row, answer in zip(rows, answers, strict=True))
        forwards = sum(sum(answer.ledger.steps().values()) for answer in answers)
        flops = sum(total_price(answer.ledger, engine.config.shape, 4).flops for answer in answers)
        found.append((name, right, forwards, flops))
    return found


def show(console: Console, found: list[tuple[str, int, int, float]], count: int) -> None:
    table = Table(title=f"{count} held-out problems, threshold 0.9 unless said otherwise")
    table.add_column("configuration")
    for heading in ("right", "95 % interval", "forwards an answer", "work"):
        table.add_column(heading, justify="right")
    for name, right, forwards, flops in found:
        low, high = wilson(right, count)
        table.add_row(
            name,
            f"{right / count:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{forwards / count:.1f}",
            f"{flops / found[0][3]:.2f}x",
        )
    console.print(table)
    console.print(
        "Work is counted in FLOPs against the baseline. The threshold line is the honest competitor: lowering "
        "it saves forwards too. Output replay gives the same tokens whatever layers it names (docs/log.md).",
        highlight=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = problems(options.problems)
    console = Console()
    console.rule("One answer, unmasked")
    console.print(prompt(rows[0]), highlight=False)
    app.main(["generate", prompt(rows[0]), "--raw", "--max-new-tokens", "160"], standalone_mode=False)
    console.rule("What reuse costs and buys")
    show(console, measure(unmask.load("embedded"), rows), len(rows))


if __name__ == "__main__":
    main()
