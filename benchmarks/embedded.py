"""What thresholds and policies cost and buy on the embedded model: the tables of its model card.

Every configuration answers the same held-out problems. Accuracy has its 95 % interval (Wilson), the
difference to the baseline is paired by problem, forwards and FLOPs are counted; there is no clock here.

    python benchmarks/embedded.py --rows 200 > tables.md

The tables are Markdown; the last line is one JSON document.
"""

import argparse
import json
import re
import sys
from math import sqrt
from pathlib import Path
from typing import Any

import torch

import unmask
from unmask.cost import total_price

BOTH = ["sub", "block"]
TASKS = Path(unmask.__file__).parent / "assets" / "tasks"
Configuration = tuple[dict[str, Any], dict[str, Any] | None]


def thresholds() -> dict[str, Configuration]:
    return {
        f"threshold {value}": ({"threshold": value}, None) for value in (0.5, 0.6, 0.7, 0.8, 0.95, 0.99, 1.0)
    }


def layer_reuse(unit: str, on: list[str]) -> dict[str, Configuration]:
    """Every subset at k = 2 and 3; k = 1 plans the baseline's forwards, which tests hold to be equal."""
    found: dict[str, Configuration] = {}
    for k in (2, 3):
        for layers in ("first", "middle", "last"):
            spec = {"kind": "layer_reuse", "k": k, "unit": unit, "layers": layers, "on": on}
            found[f"{unit} on {'+'.join(on)}, k{k}_{layers}"] = ({}, spec)
    return found


def trims() -> dict[str, Configuration]:
    return {f"TRIM keep={keep}": ({}, {"kind": "trim", "keep": keep}) for keep in (0.0, 0.25, 0.5)}


def configurations() -> dict[str, Configuration]:
    return {
        **thresholds(),
        **layer_reuse("output", ["sub"]),
        **layer_reuse("residual", ["sub"]),
        **{name: one for name, one in layer_reuse("residual", BOTH).items() if "middle" in name},
        **trims(),
        "adaptive, budget 0.3": ({}, {"kind": "adaptive", "budget": 0.3}),
    }


def final_number(text: str | None) -> str | None:
    found = re.search(r"#### (-?\d+)", text or "")
    return found[1] if found else None


def interval(right: int, count: int) -> tuple[float, float]:
    z, share = 1.96, right / count
    scale = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    return centre - spread, centre + spread


def answer(engine: unmask.Engine, rows: list[dict[str, Any]], one: Configuration) -> dict[str, Any]:
    decode, policy = one
    prompts = [f"Question: {row['question']}\nAnswer:" for row in rows]
    answers = engine.generate(prompts, {"max_new_tokens": 160, **decode}, policy)
    right = [
        final_number(a.text) == final_number(row["answer"]) for a, row in zip(answers, rows, strict=True)
    ]
    flops = sum(total_price(a.ledger, engine.config.shape, 4).flops for a in answers)
    low, high = interval(sum(right), len(rows))
    return {
        "right": right,
        "accuracy": sum(right) / len(rows),
        "low": low,
        "high": high,
        "forwards": sum(sum(a.ledger.steps().values()) for a in answers) / len(rows),
        "tokens": sum(len(a.ids) for a in answers) / len(rows),
        "flops": flops / len(rows),
    }


def line(name: str, found: dict[str, Any], baseline: dict[str, Any]) -> str:
    lost = sum(b and not a for a, b in zip(found["right"], baseline["right"], strict=True))
    won = sum(a and not b for a, b in zip(found["right"], baseline["right"], strict=True))
    return (
        f"| {name} | {found['accuracy']:.1%} | {found['low']:.1%} to {found['high']:.1%} | -{lost} +{won} "
        f"| {found['forwards']:.1f} | {found['tokens']:.0f} | {found['flops'] / baseline['flops']:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--task", default="arith")
    parser.add_argument("--model", default="embedded")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th from I on"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    engine = unmask.load(options.model, device="cpu", dtype="float32")
    lines = (TASKS / f"{options.task}.jsonl").read_text().splitlines()[: options.rows]
    rows = [json.loads(text) for text in lines]
    baseline = answer(engine, rows, ({}, None))
    print(
        f"{options.task}, n = {len(rows)}; lost and won problems are against the baseline (threshold 0.9)\n"
    )
    print("| configuration | right | 95 % interval | lost, won | forwards | tokens | work |")
    print("|---|---|---|---|---|---|---|")
    print(line("baseline", baseline, baseline), flush=True)
    found = {"baseline": baseline}
    part, parts = options.part
    for name, one in list(configurations().items())[part::parts]:
        found[name] = answer(engine, rows, one)
        print(line(name, found[name], baseline), flush=True)
    for one in found.values():
        del one["right"]
    json.dump({"benchmark": "embedded", "task": options.task, "rows": len(rows), "found": found}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
