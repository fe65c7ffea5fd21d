"""Which storage order of a weight is fastest here, by size: the table that `unmask.model.layouts` reads.

Every size is measured in every layout, by turns, over as many copies as a model has layers, so that weights
come from where they come from in a forward. A layout's score is the time of a sub-block of 8 rows, of a block of
32, and of a sixteenth of 512 (prompts and batches). Only a layout that wins clearly displaces `in_out`: the
others round differently for nothing.

    python benchmarks/layouts.py              # print the table
    python benchmarks/layouts.py --write      # and put this machine's instruction set into it

Other instruction sets can be had from a processor that knows more than they do:

    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/layouts.py

The last line is one JSON document.
"""

import argparse
import json
import os
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from random_checkpoint import COMMON, SHAPES
from timing import Sample, clock, interleave, machine
from unmask.model.config import ModelConfig, parse_config
from unmask.model.device import instruction_set
from unmask.model.layouts import LAYOUTS, TABLE
from unmask.model.projection import Projection

ROWS = {8: 1.0, 32: 1.0, 512: 1 / 16}
"""Numbers of rows that are measured, and their weights in the score."""
COPIES_BYTES = 256 << 20
MARGIN = 1.03
FORCING = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")


def sizes(config: ModelConfig) -> list[tuple[int, int]]:
    """Inputs and outputs of a model's products."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return [
        (hidden, queries + 2 * keys),
        (queries, hidden),
        (hidden, 2 * ffn),
        (ffn, hidden),
        (hidden, config.vocab_size),
    ]


def copies(inputs: int, outputs: int, layers: int) -> int:
    return max(1, min(layers, COPIES_BYTES // (4 * inputs * outputs)))


@torch.inference_mode()
def measure(inputs: int, outputs: int, count: int, repeats: int) -> dict[str, dict[int, float]]:
    """Seconds of one product for every layout and number of rows."""
    weights: dict[str, list[Projection]] = {}
    for layout in LAYOUTS:
        weights[layout] = [
            Projection.empty(outputs, inputs, False, torch.device("cpu"), torch.float32, layout)
            for _ in range(count)
        ]
        for projection in weights[layout]:
            projection.weight_OI.normal_(std=inputs**-0.5)
            projection.settle()
    found: dict[str, dict[int, float]] = {layout: {} for layout in LAYOUTS}
    for rows in ROWS:
        x = torch.randn(rows, inputs)

        def contender(layout: str, x: torch.Tensor = x) -> Sample:
            return clock(lambda: [projection(x) for projection in weights[layout]] and None)

        contenders = {layout: lambda layout=layout: contender(layout) for layout in LAYOUTS}
        interleave(contenders, 1)
        for layout, samples in interleave(contenders, repeats).items():
            found[layout][rows] = median(sample.cpu for sample in samples) / count
    return found


def best(found: dict[str, dict[int, float]]) -> str:
    """The fastest by score, or `in_out` where none is clearly faster."""
    scores = {
        layout: sum(weight * seconds[rows] for rows, weight in ROWS.items())
        for layout, seconds in found.items()
    }
    winner = min(scores, key=scores.__getitem__)
    return winner if scores[winner] * MARGIN < scores["in_out"] else "in_out"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["tiny", "0.5b", "1.5b"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help=f"replace this instruction set in {TABLE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    instructions = instruction_set(torch.device("cpu"), torch.float32)
    entries: list[dict[str, Any]] = []
    print(f"{instructions}: microseconds of one product at {', '.join(map(str, ROWS))} rows")
    for shape in options.shapes:
        config = parse_config(COMMON | SHAPES[shape], {}, source=shape)
        for inputs, outputs in sizes(config):
            if any((entry["inputs"], entry["outputs"]) == (inputs, outputs) for entry in entries):
                continue
            found = measure(inputs, outputs, copies(inputs, outputs, config.num_layers), options.repeats)
            entries.append({"inputs": inputs, "outputs": outputs, "layout": best(found)})
            cells = "   ".join(
                f"{layout} " + " ".join(f"{1e6 * seconds:9.1f}" for seconds in found[layout].values())
                for layout in LAYOUTS
            )
            print(f"{inputs:6d} x {outputs:6d}  {cells}   -> {entries[-1]['layout']}", flush=True)
    if options.write:
        write(str(instructions), entries)
    print(
        json.dumps(
            {
                "benchmark": "layouts",
                "instructions": instructions,
                "machine": machine(),
                "entries": entries,
            }
        )
    )


def write(instructions: str, entries: list[dict[str, Any]]) -> None:
    """Replace the entries of one instruction set."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    table["entries"][instructions] = entries
    forced = {name: os.environ[name] for name in FORCING if name in os.environ}
    table["measured"] = table.get("measured", {}) | {instructions: machine() | {"forced": forced}}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
