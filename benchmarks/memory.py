"""Peak memory of a decoding beside what `unmask info` predicts for it.

Every case loads a checkpoint and decodes in a process of its own, which tells its peak of resident memory as
Linux keeps it for a program (that of getrusage counts what the parent held as well). Prompts and answers fill
the length that the prediction was made for.

    python benchmarks/memory.py --shapes embedded 0.5b

The table is Markdown; the last line is one JSON document. Exit code 1 if a peak is more than a tenth away from
its prediction.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from random_checkpoint import CANVASES, DEFAULT_CACHE, SHAPES, random_checkpoint
from timing import machine
from unmask.model.hub import find_checkpoint
from unmask.model.info import describe

LIMIT = 0.1
CASES = [(1, 256), (1, 2048), (16, 512)]
"""Batch and length."""
ANSWER = 33
CHILD = """
import json, re, sys
import torch, unmask
torch.set_num_threads(1)
engine = unmask.load(sys.argv[1], device="cpu", dtype="float32")
batch, length, answer = map(int, sys.argv[2:])
draw = torch.Generator().manual_seed(0)
prompts = torch.randint(4, 300, (batch, length - answer), generator=draw)
decode = {"max_new_tokens": answer, "stop_tokens": (), "threshold": 0.05}
answers = engine.generate(prompts.tolist(), decode, batch_size=batch)
assert all(len(one.ids) == answer for one in answers)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024)
"""


def measure(folder: Path, batch: int, length: int) -> dict[str, Any]:
    """The peak of one decoding and its prediction."""
    command = [sys.executable, "-c", CHILD, str(folder), str(batch), str(length), str(ANSWER)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(told.stderr.strip().splitlines()[-1])
    peak = int(json.loads(told.stdout))
    parts: dict[str, int] = describe(folder, batch, length)["memory"]["bytes"]["float32"]
    predicted = sum(parts.values())
    return {"peak": peak, "predicted": predicted, "ratio": peak / predicted, "parts": parts}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["embedded", *sorted({*SHAPES, *CANVASES} - {"embedded"})]
    parser.add_argument("--shapes", nargs="+", choices=names, default=["embedded", "0.5b"])
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many of the batches and lengths")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    options = parser.parse_args(arguments)
    print(
        "| shape | batch | length | predicted MiB | peak MiB | peak / predicted |\n|---|---|---|---|---|---|"
    )
    rows = []
    for shape in options.shapes:
        embedded = shape == "embedded"
        folder = find_checkpoint("embedded") if embedded else random_checkpoint(shape, options.cache)
        for batch, length in CASES[: options.cases]:
            found = measure(folder, batch, length)
            rows.append({"shape": shape, "batch": batch, "length": length, **found})
            print(
                f"| {shape} | {batch} | {length} | {found['predicted'] / 2**20:.0f} | {found['peak'] / 2**20:.0f} "
                f"| {found['ratio']:.3f} |",
                flush=True,
            )
    print(json.dumps({"benchmark": "memory", "machine": machine(), "rows": rows}))
    if any(abs(row["ratio"] - 1) > LIMIT for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
