"""What a generated token costs as the context grows and as requests decode together.

Every decoding writes tokens from a script, two a step and from left to right, so that all of them take the
same forwards whatever the model thinks, and what is left to differ is the cost of each. Two things are
asserted before any figure is given: the answers are the script's tokens, and no committed block is computed
again, that is, the rows counted for a new token (by the ledgers, and once more by what the model was really
fed) are the same for every context and batch, and the prompt is fed once.

The clock holds the time behind the last prompt block: prompts are fed before the first denoising step.
The ideal of the left panel is the cost at the shortest context and on top of it the operations that
attention to a longer one adds; that of the right panel is all operations of products and attention. Both
take them at the best rate that products reach on this machine, measured in the same rounds.

    python benchmarks/growth.py --repeats 5 --plot growth.png
    python benchmarks/growth.py --shapes 0.5b --contexts 64 512 2048 --batches 1 4

Contexts that are too long for the embedded model are measured on random weights only (`--shapes tiny`). The
CPU clock counts for one thread, the wall clock for more. The last line is one JSON document.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import unmask
from counting import Clock, Ids, LayerProducts, clock_of, refuse_difference, watched
from random_checkpoint import DEFAULT_CACHE, SHAPES, random_checkpoint
from timing import Ratio, Sample, interleave, machine
from unmask.cost import Ledger, total_price
from unmask.engine.unmasking import ForcedTokens

EMBEDDED = "embedded"
PEAK_ROWS = 512
"""Rows at which products have reached their best rate."""
Script = list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Case:
    """One decoding: so many requests behind so many prompt tokens, whole blocks."""

    context: int
    batch: int


@dataclass
class Decoded:
    """What a decoding gave and took behind its prompts."""

    ids: Ids
    ledgers: list[Ledger]
    seconds: float


def script_of(first: int, tokens: Sequence[int], block: int) -> Script:
    """The steps that write these tokens from a column on, which begins a block.

    The first token of a block is written by the forward before it (prompt or commit), the others in pairs
    that never cross an even column, so that no step leaves its sub-block.
    """
    steps: Script = []
    for offset, token in enumerate(tokens):
        if offset % 2 == 0 or offset % block == 1:
            steps.append([])
        steps[-1].append((first + offset, token))
    return steps


def drawn_ids(engine: unmask.Engine, count: int, length: int, seed: int) -> Ids:
    """Random tokens, none of which is the mask."""
    draw = torch.Generator().manual_seed(seed)
    ids_NL = torch.randint(0, engine.config.vocab_size - 1, (count, length), generator=draw)
    return (ids_NL + (ids_NL >= engine.mask_token)).tolist()  # type: ignore[no-any-return]


def decode(engine: unmask.Engine, case: Case, new_tokens: int, clock: Clock) -> Decoded:
    """Write the script behind random prompts; the clock starts when the last prompt is in."""
    prompts = drawn_ids(engine, case.batch, case.context, seed=case.context)
    block = engine.config.block_size or 32
    scripts = {
        index: script_of(case.context, tokens, block)
        for index, tokens in enumerate(drawn_ids(engine, case.batch, new_tokens, seed=1))
    }
    spec = unmask.DecodeSpec(max_new_tokens=new_tokens, stop_tokens=())
    answers: dict[int, unmask.Generation] = {}
    start = clock()
    for event in engine.stream(prompts, spec, None, case.batch, ForcedTokens(scripts)):
        if isinstance(event, unmask.Finished):
            answers[event.request] = event.generation
        elif event.kind.value == "prefill":
            start = clock()
    seconds = clock() - start
    ordered = [answers[index] for index in sorted(answers)]
    return Decoded([one.ids for one in ordered], [one.ledger for one in ordered], seconds)


def behind_prompt(ledger: Ledger) -> Ledger:
    """The work of a ledger without that of its prompt."""
    entries = {work: count for work, count in ledger.entries.items() if work.kind != "prefill"}
    return Ledger(ledger.layers, type(ledger.entries)(entries))


def count(engine: unmask.Engine, case: Case, new_tokens: int) -> dict[str, Any]:
    """Decode once and count; refuse other tokens than the script's and rows that the ledgers do not know."""
    with watched() as forwards:
        found = decode(engine, case, new_tokens, clock_of(1)[1])
    refuse_difference({"the script": drawn_ids(engine, case.batch, new_tokens, seed=1), str(case): found.ids})
    rows = [sum(behind_prompt(ledger).rows().values()) for ledger in found.ledgers]
    fed = sum(forward.rows for forward in forwards)
    if fed != sum(rows) + case.batch * case.context:
        raise SystemExit(f"{case}: the model was fed {fed} rows, but the ledgers know of other work.")
    flops = [
        total_price(behind_prompt(ledger), engine.config.shape, 4).flops / new_tokens
        for ledger in found.ledgers
    ]
    return {"rows_per_token": sum(rows) / case.batch / new_tokens, "flops_per_token": median(flops)}


def refuse_growth(cases: Sequence[Mapping[str, Any]]) -> None:
    """Stop where a new token takes more rows than elsewhere: something committed was computed again."""
    least = min(case["rows_per_token"] for case in cases)
    for case in cases:
        if case["rows_per_token"] > least:
            raise SystemExit(
                f"Context {case['context']}, batch {case['batch']}: {case['rows_per_token']:.2f} rows are fed for a "
                f"new token, {least:.2f} elsewhere; committed blocks are computed again."
            )


def measure(engine: unmask.Engine, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    """All contexts alone and all batches at one context, in turns."""
    on, seconds_of = clock_of(options.threads)
    room = engine.config.max_positions - options.new_tokens
    contexts = [context for context in options.contexts if context <= room]
    beside = min(options.batch_context, room)
    chosen = dict.fromkeys(
        [Case(context, 1) for context in contexts] + [Case(beside, batch) for batch in options.batches]
    )
    counted = [asdict(case) | count(engine, case, options.new_tokens) for case in chosen]
    refuse_growth(counted)
    products = LayerProducts(engine.config.shape)
    best: list[float] = []

    def contender(case: Case) -> Callable[[], Sample]:
        def sample() -> Sample:
            taken = decode(engine, case, options.new_tokens, seconds_of).seconds
            return Sample(taken, taken)

        return sample

    def peak() -> Sample:
        best.append(products.seconds(PEAK_ROWS, seconds_of))
        return Sample(best[-1], best[-1])

    contenders = {str(case): contender(case) for case in chosen} | {"peak": peak}
    samples = interleave(contenders, options.repeats)
    rate = products.flops(PEAK_ROWS) / min(best)
    first = [sample.wall for sample in samples[str(next(iter(chosen)))]]
    for case, told in zip(chosen, counted, strict=True):
        taken = [sample.wall / case.batch for sample in samples[str(case)]]
        told["ms_per_token"] = 1000 * median(taken) / options.new_tokens
        told["times_the_first"] = asdict(Ratio.of(taken, first))
        told["ms_per_token_at_peak"] = 1000 * told["flops_per_token"] / rate
    return {
        "shape": shape,
        "clock": on,
        "batch_context": beside,
        "contexts_too_long": [context for context in options.contexts if context > room],
        "peak_gigaflops": rate / 1e9,
        "cases": counted,
    }


def show(found: Mapping[str, Any]) -> None:
    print(f"{found['shape']}: products reach {found['peak_gigaflops']:.0f} GFLOP/s")
    if found["contexts_too_long"]:
        print(f"  too long for its context: {', '.join(map(str, found['contexts_too_long']))}")
    print(
        f"  {'context':>8} {'batch':>6} {'rows/token':>11} {'MFLOP/token':>12} {'ms/token':>9} {'at peak':>9}"
    )
    for case in found["cases"]:
        print(
            f"  {case['context']:8d} {case['batch']:6d} {case['rows_per_token']:11.2f} "
            f"{case['flops_per_token'] / 1e6:12.2f} {case['ms_per_token']:9.3f} {case['ms_per_token_at_peak']:9.3f}"
        )


def draw(found: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Two panels: against the context with one request, and against the batch at one context."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for number, one in enumerate(found):
        colour = f"C{number}"
        alone = sorted((c for c in one["cases"] if c["batch"] == 1), key=lambda c: c["context"])
        fixed = alone[0]["ms_per_token"] - alone[0]["ms_per_token_at_peak"]
        line(left, alone, "context", "ms_per_token", color=colour, marker="o", label=one["shape"])
        ideal = [case | {"ideal": fixed + case["ms_per_token_at_peak"]} for case in alone]
        line(left, ideal, "context", "ideal", color=colour, ls="--", label=f"{one['shape']}, ideal")
        together = [c for c in one["cases"] if c["context"] == one["batch_context"]]
        together.sort(key=lambda c: c["batch"])
        line(right, together, "batch", "ms_per_token", color=colour, marker="o", label=one["shape"])
        limit = f"{one['shape']}, all at the products' peak"
        line(right, together, "batch", "ms_per_token_at_peak", color=colour, ls="--", label=limit)
    left.set(title="One request", xlabel="tokens of context")
    behind = ", ".join(str(number) for number in sorted({one["batch_context"] for one in found}))
    right.set(title=f"Requests together, {behind} tokens of context", xlabel="requests")
    for panel in (left, right):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:.0f}")
        panel.set_ylabel("ms for each new token")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def line(panel: Any, cases: Sequence[Mapping[str, Any]], x: str, y: str, **looks: Any) -> None:
    panel.plot([case[x] for case in cases], [case[y] for case in cases], **looks)


def load(shape: str, cache: Path) -> unmask.Engine:
    model = shape if shape == EMBEDDED else random_checkpoint(shape, cache)
    return unmask.load(model, device="cpu", dtype="float32")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=[EMBEDDED, *SHAPES], default=[EMBEDDED, "tiny"])
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--batch-context", type=int, default=256, help="context of the batches")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="file to draw to")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found = []
    for shape in options.shapes:
        engine = load(shape, options.cache)
        block = engine.config.block_size or 32
        if any(context < block or context % block for context in [*options.contexts, options.batch_context]):
            parser.error(f"contexts must be whole blocks of {block} tokens")
        found.append(measure(engine, shape, options))
        show(found[-1])
    if options.plot:
        draw(found, options.plot)
    settings = {"new_tokens": options.new_tokens, "repeats": options.repeats}
    print(json.dumps({"benchmark": "growth", **settings, "shapes": found} | machine()))


if __name__ == "__main__":
    main()
