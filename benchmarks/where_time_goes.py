"""Where the time of a forward goes: products, attention, norms and so on, and what is no operation at all.

One call is what the decoder does for one step: forward, logits of the rows that are read, predictions, copy to
the host. It is run in turns as it is, which gives the total (CPU clock for one thread, else wall clock), and
under torch's profiler, which tells how long each operation took. Both must give the same predictions.

Only operations that Python called itself are taken, whole, with all that they called in turn; name and
shapes say what they were for, and that they ran inside of logits or predictions says head or sampling. An
operation's time is the median over all rounds of the operation at that place, so that a neighbour who takes the
core for a moment does not count. The profiler makes every operation slower: that is the difference of
the two totals, shared evenly among all operations. Where it fell between the operations it is not in their
times; where it fell into one, because that one called others, it is taken off. `Python and dispatch` is what
the operations leave of the total; should they exceed it, they are scaled down to it, and the tables say so
where it is more than rounding: the machine was too busy for a profile.

    python benchmarks/where_time_goes.py --repeats 15
    python benchmarks/where_time_goes.py --shapes embedded --write docs/performance.md

The tables are Markdown; --write puts them between the markers of a file. Figures are milliseconds and shares.
The last line is one JSON document; it lists operations that no rule knows, which count as `other operations`.
"""

import argparse
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

# The profiler's library tells every start and stop otherwise; it looks when torch is imported.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch
from torch.profiler import ProfilerActivity, profile, record_function

import unmask
from growth import EMBEDDED, load
from random_checkpoint import DEFAULT_CACHE, SHAPES
from timing import Sample, clock, fair_clock, interleave, machine
from unmask.cost.shape import ModelShape
from unmask.engine.forward import Workspace
from unmask.engine.sampling import Predictions, packed_predictions, to_host
from unmask.model.geometry import Segment

BEGIN, END = "<!-- profile:begin -->", "<!-- profile:end -->"
SUB_BLOCK = 8
TOO_BUSY = 0.95
"""A scale below which a table says that its operations were scaled."""
PRODUCTS = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::linear", "aten::matmul"}
ATTENTION = {"aten::bmm", "aten::baddbmm", "aten::softmax", "aten::_softmax", "aten::index_select"}
NORMS = {
    "aten::rms_norm",
    "aten::rsqrt",
    "aten::rsqrt_",
    "aten::linalg_vector_norm",
    "aten::pow",
    "aten::mean",
}
PARTS = (
    "qkv",
    "attention_out",
    "gate_up",
    "down",
    "other products",
    "attention",
    "norms",
    "rotation",
    "cache writes",
    "activation",
    "residual",
    "head",
    "sampling",
    "other operations",
    "Python and dispatch",
)
Shapes = Sequence[Sequence[int]]
Phase = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Step:
    """One forward of the decoder: its rows, and those whose logits are read."""

    name: str
    segments: list[Segment]
    reads: list[int]

    @property
    def rows(self) -> int:
        """Rows that are fed."""
        return sum(len(segment.positions) for segment in self.segments)


def steps_of(context: int, block: int) -> list[Step]:
    """Every kind of forward of one request behind so many prompt tokens; the prompt is fed first."""
    blocks = [range(start, start + block) for start in range(0, context, block)]
    current, seen = range(context, context + block), context + block
    whole = [Segment(0, current, seen)]
    return [
        Step(f"prefill of {context}", [Segment(0, one, one.stop) for one in blocks], [context - 1]),
        Step(f"block of {block}", whole, list(range(SUB_BLOCK - 1))),
        Step(f"sub of {SUB_BLOCK}", [Segment(0, current[:SUB_BLOCK], seen)], list(range(SUB_BLOCK // 2))),
        Step("commit", whole, [block - 1]),
    ]


@torch.inference_mode()
def run(
    engine: unmask.Engine, workspace: Workspace, step: Step, phase: Phase = lambda _: nullcontext()
) -> Predictions:
    """What the decoder does for one step."""
    tokens = [column % engine.mask_token for segment in step.segments for column in segment.positions]
    with phase("layers"):
        hidden_TD = workspace.forward(tokens, step.segments).hidden_TD
    with phase("head"):
        logits_NV = engine.transformer.logits(hidden_TD[torch.tensor(step.reads)])
    with phase("sampling"):
        return to_host(packed_predictions(logits_NV, engine.mask_token, (), 0.0, 1.0))


def product_of(shapes: Shapes, rows: int, shape: ModelShape) -> str | None:
    """Which product an operation on these shapes is."""
    heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    known = {
        "qkv": (shape.hidden, heads + 2 * kv_heads),
        "attention_out": (heads, shape.hidden),
        "gate_up": (shape.hidden, 2 * shape.ffn),
        "down": (shape.ffn, shape.hidden),
    }
    given = [tuple(one) for one in shapes]
    for name, (inputs, outputs) in known.items():
        if (rows, inputs) in given and ((inputs, outputs) in given or (outputs, inputs) in given):
            return name
    return None


def part_of(name: str, shapes: Shapes, rows: int, shape: ModelShape) -> str | None:
    """What an operation of the layers was for; None where no rule knows."""
    given = [tuple(one) for one in shapes if one]
    first = given[0] if given else ()
    if name in PRODUCTS or name.startswith("mkldnn::_linear"):
        return product_of(shapes, rows, shape) or "other products"
    if name in ("aten::bmm", "aten::baddbmm") and any(one[-2:] == (1, shape.hidden) for one in given):
        return "norms"
    if name.startswith("aten::scaled_dot_product") or name in ATTENTION:
        return "attention"
    if "norm" in name or name in NORMS or (rows, 1) in given[:2]:
        return "norms"
    if name.startswith("aten::silu") or (name.startswith("aten::mul") and first == (rows, shape.ffn)):
        return "activation"
    if name == "aten::add_" and first == (rows, shape.hidden):
        return "residual"
    if name.startswith("aten::mul") and (shape.hidden,) in given:
        return "norms"
    if name.startswith(("aten::copy_", "aten::index_copy", "aten::index_put")):
        return _part_of_copy(name, first)
    if name.startswith(("aten::roll", "aten::mul", "aten::addcmul")) and len(first) == 3:
        return "rotation"
    if name == "aten::index":
        return "rotation" if len(first) == 2 else "attention"
    if name in ("aten::reshape", "aten::cat", "aten::contiguous") and shape.head_dim in (*first[-1:],):
        return "attention"
    return None


def _part_of_copy(name: str, first: tuple[int, ...]) -> str:
    """Queries stacked for attention have five axes, a packed product brought to its buffer two, what is kept others."""
    known = {5: "attention", 2: "qkv"} if name == "aten::copy_" else {}
    return known.get(len(first), "cache writes")


@dataclass(frozen=True)
class Operation:
    """An operation that Python called, with all that it called in turn."""

    part: str | None
    name: str
    microseconds: float
    inner: int
    """Operations that it called."""


def operations(events: Any, rows: int, shape: ModelShape) -> Iterator[Operation]:
    """The operations of a profiled step in their order."""
    for phase in events:
        if not phase.name.startswith("phase:"):
            continue
        where = phase.name.removeprefix("phase:")
        for event in phase.cpu_children:
            part = part_of(event.name, event.input_shapes, rows, shape) if where == "layers" else where
            yield Operation(part, event.name, event.cpu_time_total, _descendants(event))


def _descendants(event: Any) -> int:
    return sum(1 + _descendants(child) for child in event.cpu_children)


def measure(
    engine: unmask.Engine, workspace: Workspace, step: Step, options: argparse.Namespace
) -> dict[str, Any]:
    """One kind of forward, plain and profiled in turns."""
    on, profiled = fair_clock(options.threads), list[list[Operation]]()
    found: dict[str, Predictions] = {}

    def plain() -> Sample:
        return clock(lambda: found.update(plain=run(engine, workspace, step)))

    def watched() -> Sample:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            taken = clock(lambda: found.update(profiled=run(engine, workspace, step, _phase)))
        profiled.append(list(operations(profiler.events(), step.rows, engine.config.shape)))
        return taken

    for contender in (plain, watched):
        contender()
    refuse_difference(found)
    profiled.clear()
    samples = interleave({"plain": plain, "profiled": watched}, options.repeats)
    refuse_difference(found)
    totals = {name: median(getattr(sample, on) for sample in taken) for name, taken in samples.items()}
    return {"step": step.name, "rows": step.rows, **split(profiled, totals["plain"], totals["profiled"])}


def _phase(name: str) -> AbstractContextManager[Any]:
    return record_function(f"phase:{name}")


def refuse_difference(found: Mapping[str, Predictions]) -> None:
    """Stop where the profiled call gave other tokens."""
    if found["plain"].tokens != found["profiled"].tokens:
        raise SystemExit("The profiled forward gave other tokens than the plain one, so no figure is given.")


def split(profiled: Sequence[Sequence[Operation]], total: float, profiled_total: float) -> dict[str, Any]:
    """Divide the plain total among the parts."""
    if any([one.name for one in turn] != [one.name for one in profiled[0]] for turn in profiled):
        raise SystemExit("The operations of a forward differ from round to round, so no figure is given.")
    count = sum(1 + one.inner for one in profiled[0])
    slowdown = max(0.0, profiled_total - total) / count
    seconds: dict[str, float] = defaultdict(float)
    unknown: Counter[str] = Counter()
    for place in zip(*profiled, strict=True):
        took = median(one.microseconds for one in place) / 1e6 - slowdown * place[0].inner
        seconds[place[0].part or "other operations"] += max(0.0, took)
        unknown[place[0].name] += place[0].part is None
    scale = min(1.0, total / sum(seconds.values()))
    parts = {part: scale * seconds[part] for part in PARTS if part in seconds}
    parts["Python and dispatch"] = max(0.0, total - sum(parts.values()))
    return {
        "seconds": total,
        "profiled_seconds": profiled_total,
        "operations": count,
        "called_by_python": len(profiled[0]),
        "scale": scale,
        "parts": parts,
        "unknown": dict(+unknown),
    }


def table(shape: str, steps: Sequence[Mapping[str, Any]]) -> str:
    """The parts as Markdown, one column for each kind of forward."""
    lines = [
        f"| {shape} | {' | '.join(step['step'] for step in steps)} |",
        f"|---|{'---:|' * len(steps)}",
    ]
    for part in PARTS:
        taken = [step["parts"].get(part, 0.0) for step in steps]
        if any(taken) or part == PARTS[-1]:
            cells = [
                f"{1000 * s:.2f} ({s / step['seconds']:.0%})" for s, step in zip(taken, steps, strict=True)
            ]
            lines.append(f"| {part} | {' | '.join(cells)} |")
    lines.append(f"| **total, ms** | {' | '.join(format(1000 * step['seconds'], '.2f') for step in steps)} |")
    busy = [f"{step['step']} by {step['scale']:.2f}" for step in steps if step["scale"] < TOO_BUSY]
    if busy:
        lines.append(f"\nScaled down, since the machine was too busy: {', '.join(busy)}.")
    return "\n".join(lines)


def write_between_markers(file: Path, text: str) -> None:
    """Replace what is between the markers of a file and leave the rest as it is."""
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{file} has no {BEGIN} with a {END} behind it; put them where the tables belong.")
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def caption(options: argparse.Namespace) -> str:
    """What a reader of the tables must know."""
    known = machine()
    return (
        f"{known['processor']}, {known['threads']} thread(s), float32, torch {known['torch']}, commit "
        f"{known['commit']}; medians of {options.repeats} rounds on the {fair_clock(options.threads)} clock; "
        f"milliseconds, and the share of the total."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=[EMBEDDED, *SHAPES], default=[EMBEDDED, "0.5b"])
    parser.add_argument("--context", type=int, default=512, help="prompt tokens, whole blocks")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", type=Path, help="file whose markers the tables belong between")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found, tables = {}, [caption(options)]
    for shape in options.shapes:
        engine = load(shape, options.cache)
        block = engine.config.block_size or 32
        if options.context < block or options.context % block:
            parser.error(f"the context must be whole blocks of {block} tokens")
        workspace = engine.workspace(1, options.context + block, block)
        steps = steps_of(options.context, block)
        found[shape] = [measure(engine, workspace, step, options) for step in steps]
        tables.append(table(shape, found[shape]))
    print("\n\n".join(tables))
    if options.write:
        write_between_markers(options.write, "\n\n".join(tables))
    settings = {"context": options.context, "repeats": options.repeats, "clock": fair_clock(options.threads)}
    print(json.dumps({"benchmark": "where_time_goes", **settings, "shapes": found} | machine()))


if __name__ == "__main__":
    main()
