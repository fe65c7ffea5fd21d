"""What an accelerator is asked to do in one forward, counted on the pretended device of the tests.

For each family, policy and kind of forward: operations that one more layer adds (models of two depths), those
around the layers, uploads and synchronisations, as medians over the forwards of a decoding in fp32. Casts in
half precision come on top. Beside them stand the forwards of a kind that are the same work as an earlier one,
places aside: equal plans, as many rows of each request, and contexts that end in the same 256 positions. Only
such forwards could be captured once and replayed; how many kinds there are bounds the memory it would take.

    python benchmarks/operations.py --write docs/performance.md

Needs no accelerator and measures no time. The last line is one JSON document.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from checkpoints import MASK, OF_FAMILY, small_recipe
from device.pretended import DEVICE, WATCH
from pages import markdown, put_into_page
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.engine.forward import ForwardOutput, Workspace
from unmask.engine.step_plan import Op
from unmask.model.checkpoint import open_checkpoint
from unmask.model.geometry import Segment
from unmask.model.synthetic import write_checkpoint
from unmask.model.weights import load_transformer
from unmask.policies.registry import make_policy

DEPTHS = (6, 12)
DECODE = {"max_new_tokens": 40, "stop_tokens": ()}
SETTINGS: dict[str, dict[str, Any]] = {
    "fast_dllm_v2": {"block_size": 32, "sub_block_size": 8},
    "sdar": {"block_size": 8},
    "autoregressive": {"max_new_tokens": 16},
    "llada, no cache": {"sub_block_size": 16, "cache": "none"},
    "llada, prefix cache": {"sub_block_size": 16, "cache": "prefix"},
    "llada, dual cache": {"sub_block_size": 16, "cache": "dual"},
    "llada, guidance": {"sub_block_size": 16, "cache": "dual", "guidance": 0.7},
    "dream, dual cache": {"sub_block_size": 16, "cache": "dual"},
}
ON = ["sub", "block", "tail"]
POLICIES: dict[str, dict[str, Any] | None] = {
    "baseline": None,
    "output": {"kind": "layer_reuse", "unit": "output", "k": 2, "on": ON},
    "residual": {"kind": "layer_reuse", "unit": "residual", "k": 2, "on": ON},
    "TRIM": {"kind": "trim", "inside": True},
    "TRIM, probe": {"kind": "trim", "inside": True, "keep": 0.4, "probe_layer": 1},
    "adaptive": {"kind": "adaptive", "max_drift": 0.4},
}
ELSEWHERE = {False: ("baseline", "residual"), True: ("baseline",)}
"""Policies that are counted on other families, too, by whether they predict one token at a time."""
BATCHES = (1, 16)
BUCKET = 256
Counts = dict[str, list[tuple[int, ...]]]
"""For each kind of forward, launches, casts, uploads and synchronisations of every one."""


def engine_of(family: str, layers: int, folder: Path) -> Engine:
    """A small random model of a family on the pretended device."""
    changes = OF_FAMILY[family] | {"num_hidden_layers": layers, "n_layers": layers}
    written = write_checkpoint(small_recipe(4, **changes), folder / f"{family}-{layers}")
    transformer = load_transformer(open_checkpoint(written), DEVICE, torch.float32)
    return Engine(transformer, None if family == "autoregressive" else MASK, make_policy=make_policy)


def prompts(count: int) -> list[list[int]]:
    return [
        [(7 * place + 5 * number) % MASK for place in range(20 + 13 * number % 48)] for number in range(count)
    ]


def counted(engine: Engine, settings: dict[str, Any], policy: Any) -> Counts:
    """What every forward of one request asked for, the first of a kind left out: it makes buffers."""
    seen: Counts = defaultdict(list)
    before = WATCH.counts()
    for event in engine.stream(prompts(1), DECODE | settings, policy):
        if isinstance(event, StepEvent):
            now = WATCH.counts()
            replays = " that replays" if Op.REPLAY in event.plan.ops else ""
            seen[event.kind.value + replays].append(tuple(a - b for a, b in zip(now, before, strict=True)))
            before = now
    return {kind: each[1:] or each for kind, each in seen.items()}


@contextmanager
def kinds_of_work() -> Iterator[list[Any]]:
    """What tells forwards of all workspaces apart while this is open, places aside."""
    seen: list[Any] = []
    plain = Workspace.forward

    def forward(
        self: Workspace,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        parts: Any = (),
        reads: Any = None,
    ) -> ForwardOutput:
        rows = tuple((len(each.positions), each.stair) for each in segments)
        bucket = max(-(-each.visible // BUCKET) for each in segments)
        seen.append((rows, bucket, tuple((each.plan, each.segments) for each in parts)))
        return plain(self, tokens, segments, parts, reads)

    with patch.object(Workspace, "forward", forward):
        yield seen


def again(engine: Engine, settings: dict[str, Any], policy: Any, batch: int) -> tuple[float, int]:
    """The share of forwards that are the same work as an earlier one, and how many kinds of work there are."""
    with kinds_of_work() as seen:
        engine.generate(prompts(batch), DECODE | settings, policy, batch_size=batch)
    return 1 - len(set(seen)) / len(seen), len(set(seen))


def rows_of(folder: Path, families: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for name in families:
        small, large = (engine_of(name.partition(",")[0], layers, folder) for layers in DEPTHS)
        for policy_name, policy in POLICIES.items():
            if name != "fast_dllm_v2" and policy_name not in ELSEWHERE[name == "autoregressive"]:
                continue
            settings = SETTINGS[name]
            few, many = (counted(engine, settings, policy) for engine in (small, large))
            shares = {batch: again(small, settings, policy, batch) for batch in BATCHES}
            for kind in (kind for kind in many if kind in few):
                (less, *_), (more, _, uploads, waits) = (
                    [median(column) for column in zip(*each[kind], strict=True)] for each in (few, many)
                )
                layer = (more - less) / (DEPTHS[1] - DEPTHS[0])
                rows.append(
                    {
                        "family": name,
                        "policy": policy_name,
                        "forward": kind,
                        "operations a layer": layer,
                        "around": more - layer * DEPTHS[1],
                        "uploads": uploads,
                        "synchronisations": waits,
                    }
                    | {f"again, batch {batch}": shares[batch] for batch in BATCHES}
                )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table of the page; what concerns a whole decoding stands in its first row."""
    shown, last = [], None
    for row in rows:
        shares = [
            f"{share:.0%} ({kinds})" for share, kinds in (row[f"again, batch {each}"] for each in BATCHES)
        ]
        first = (row["family"], row["policy"]) != last
        last = row["family"], row["policy"]
        numbers = ("operations a layer", "around", "uploads", "synchronisations")
        shown.append(
            [*(last if first else ("", "")), row["forward"], *(f"{row[name]:.3g}" for name in numbers)]
            + (shares if first else ["", ""])
        )
    headings = ["family", "policy", "forward", "operations a layer", "around the layers", "uploads", "waits"]
    return markdown([*headings, *(f"again, batch {each} (kinds)" for each in BATCHES)], shown)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, WATCH:
        rows = rows_of(Path(folder), options.families)
    lines = table(rows)
    print("\n".join(lines))
    if options.write:
        put_into_page(options.write, "operations", lines)
    print(json.dumps({"benchmark": "operations", "torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
