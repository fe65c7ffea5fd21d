"""Which storage order of a weight makes its products fast: looked up by size and instruction set, never timed here.

Orders round differently, so a choice made by timing would let tokens depend on a race. The table
(layouts.json) was measured by `python benchmarks/layouts.py`, which also writes it anew. A size that is not in
it takes the entry nearest to it, by the ratio of sides; an instruction set that is not in it takes `in_out`.
Measured were 8, 32 and 512 rows with one thread; the choice serves any number of either.
"""

import json
from functools import cache
from math import log
from pathlib import Path
from typing import Literal, TypedDict, get_args

Layout = Literal["out_in", "in_out", "packed"]
"""`out_in` is the order of checkpoints, `in_out` its transpose, `packed` a form of oneDNN's own."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
TABLE = Path(__file__).with_name("layouts.json")


class LayoutEntry(TypedDict):
    """One measured size."""

    inputs: int
    outputs: int
    layout: Layout


@cache
def table() -> dict[str, list[LayoutEntry]]:
    """The measured sizes of every instruction set."""
    entries: dict[str, list[LayoutEntry]] = json.loads(TABLE.read_text(encoding="utf-8"))["entries"]
    return entries


def choose_layout(inputs: int, outputs: int, instructions: str | None) -> Layout:
    """The layout of a weight; `instructions` names the CPU's instruction set, None stands for accelerators."""
    if instructions is None:
        return "out_in"
    entries = table().get(instructions)
    if not entries:
        return "in_out"

    def distance(entry: LayoutEntry) -> float:
        return abs(log(entry["inputs"] / inputs)) + abs(log(entry["outputs"] / outputs))

    return min(entries, key=distance)["layout"]
