"""What reuse buys for each denoising step, beside what the skipped work allows it to buy.

Reuse changes the tokens and so the number of steps; for a fair clock every policy here writes the tokens
of the baseline, step by step, and only the time of denoising steps is compared, each run with a run of the
baseline right beside it. The ceiling of a policy is the baseline's time less the time of the branches it
skips, whose costs for each number of rows are measured in the same rounds. Freely decoded tokens and forwards
are reported beside it. With one thread the clock is that of the CPU: it does not count the time in which
another process had the core.

    python benchmarks/reuse.py --shape 0.5b --repeats 7
    python benchmarks/reuse.py --shape wide --batches 1 4 16

With --batches whole decodings of so many requests are compared, prompts and commits included, and what is
allowed is the ratio of counted operations. Beside it stand forwards and passes over the layers' weights,
counted: a forward in which half of the branches run on some row is half a pass.

The last line is one JSON document.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import unmask
from random_checkpoint import DEFAULT_CACHE, SHAPES, random_checkpoint
from timing import Ratio, machine
from unmask.cost import Ledger, total_price
from unmask.engine.forward import Workspace
from unmask.engine.unmasking import ForcedTokens
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer

BOTH = ["sub", "block"]
PROMPT = 64
CLOCK = time.process_time
"""Of the CPU; `main` takes the wall clock for several threads."""


def policies(layers: int) -> dict[str, dict[str, Any] | None]:
    """The configurations that are compared; layer reuse takes the middle third."""
    found: dict[str, dict[str, Any] | None] = {"k1": None}
    for k in (2, 3):
        for unit in ("output", "residual", "attention", "mlp"):
            spec = {"kind": "layer_reuse", "k": k, "unit": unit, "size": layers // 3, "on": BOTH}
            found[f"k{k}_{unit}"] = spec
    found["trim_0"] = {"kind": "trim", "keep": 0.0}
    found["trim_0.5"] = {"kind": "trim", "keep": 0.5}
    return found


def run(
    engine: unmask.Engine, prompt: list[int], decode: unmask.DecodeSpec, policy: Any, script: list[Any] | None
) -> tuple[float, list[Any], unmask.Generation]:
    """Decode once; return the seconds of denoising steps, what each step wrote, and the answer."""
    rule = ForcedTokens({0: script}) if script is not None else None
    seconds, written, answer = 0.0, [], None
    last = CLOCK()
    for event in engine.stream([prompt], decode, policy, batch_size=1, rule=rule):
        now = CLOCK()
        if isinstance(event, unmask.Finished):
            answer = event.generation
            continue
        if event.kind.value in ("block", "sub"):
            seconds += now - last
        if event.positions:
            written.append(list(zip(event.positions, event.tokens, strict=True)))
        last = now
    return seconds, written, answer


def row_counts(ledgers: list[Ledger]) -> list[int]:
    """Every number of rows that some branch of some denoising step ran on."""
    counts = set()
    for ledger in ledgers:
        for work in ledger.entries:
            if work.kind in ("block", "sub"):
                counts.update(work.attention_rows(layer) for layer in range(ledger.layers))
                counts.update(work.mlp_rows(layer) for layer in range(ledger.layers))
    return sorted(counts - {0})


@torch.inference_mode()
def branch_costs(engine: unmask.Engine, counts: list[int], visible: int) -> dict[tuple[str, int], float]:
    """Seconds of one layer's branch for each number of rows, averaged over all layers."""
    model = engine.transformer
    workspace = engine.workspace(1, visible, 32)
    costs = {}
    for rows in counts:
        segment = Segment(0, range(visible - rows, visible), visible)
        _, frame = workspace.open([0] * rows, [segment])
        x = torch.randn(rows, model.config.hidden_size)
        start = CLOCK()
        for layer in range(len(model.layers)):
            model.attention(layer, x, frame)
        middle = CLOCK()
        for layer in range(len(model.layers)):
            model.mlp(layer, x, frame)
        stop = CLOCK()
        costs["attention", rows] = (middle - start) / len(model.layers)
        costs["mlp", rows] = (stop - middle) / len(model.layers)
    return costs


def saved_seconds(ledger: Ledger, costs: dict[tuple[str, int], float]) -> float:
    """Time of the branch rows that the denoising steps of a ledger skipped."""
    saved = 0.0
    for work, times in ledger.entries.items():
        if work.kind not in ("block", "sub"):
            continue
        for layer in range(ledger.layers):
            for branch, rows in (("attention", work.attention_rows(layer)), ("mlp", work.mlp_rows(layer))):
                saved += times * (costs[branch, work.rows] - (costs[branch, rows] if rows else 0.0))
    return saved


def measure(engine: unmask.Engine, new_tokens: int, repeats: int, chosen: set[str]) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, engine.mask_token, (PROMPT,), generator=generator).tolist()
    decode = unmask.DecodeSpec(max_new_tokens=new_tokens, stop_tokens=())
    configurations = {
        name: policy
        for name, policy in policies(engine.config.num_layers).items()
        if name == "k1" or not chosen or name in chosen
    }
    _, script, _ = run(engine, prompt, decode, None, None)
    free = {name: run(engine, prompt, decode, policy, None)[2] for name, policy in configurations.items()}
    forced = {name: run(engine, prompt, decode, policy, script)[2] for name, policy in configurations.items()}
    assert all(answer.ids == free["k1"].ids for answer in forced.values()), (
        "forced tokens must be the baseline's"
    )
    counts = row_counts([answer.ledger for answer in forced.values()])
    seconds: dict[str, list[float]] = defaultdict(list)
    beside: dict[str, list[float]] = defaultdict(list)
    ceilings: dict[str, list[float]] = defaultdict(list)
    for turn in range(repeats):
        costs = branch_costs(engine, counts, PROMPT + 32)
        for name, policy in configurations.items():
            pair = {"k1": None, name: policy} if turn % 2 else {name: policy, "k1": None}
            took = {each: run(engine, prompt, decode, pair[each], script)[0] for each in pair}
            seconds[name].append(took[name])
            beside[name].append(took["k1"])
            saved = saved_seconds(forced[name].ledger, costs)
            ceilings[name].append(took["k1"] / (took["k1"] - saved))
    steps = forced["k1"].ledger.steps()
    denoising = steps["block"] + steps["sub"]
    return [
        {
            "policy": name,
            "steps": denoising,
            "ms_per_step": 1000 * median(seconds[name]) / denoising,
            "speedup": asdict(Ratio.of(beside[name], seconds[name])),
            "ceiling": median(ceilings[name]),
            "share_of_ceiling": median(
                base / took / ceiling
                for base, took, ceiling in zip(beside[name], seconds[name], ceilings[name], strict=True)
            ),
            "work_skipped": forced[name].ledger.reuse_fraction(),
            "free_forwards": sum(free[name].ledger.steps().values()),
            "free_branch_rows": free[name].ledger.branch_rows() / free["k1"].ledger.branch_rows(),
        }
        for name in configurations
    ]


@dataclass
class Reading:
    """What a decoding read of the weights."""

    forwards: int = 0
    branches: int = 0


@contextmanager
def counted_reading() -> Iterator[Reading]:
    """Count forwards, and branches that run on any row."""
    reading = Reading()
    patches = [
        patch.object(Workspace, "forward", _counting(Workspace.forward, reading, "forwards")),
        patch.object(Transformer, "attention", _counting(Transformer.attention, reading, "branches")),
        patch.object(Transformer, "mlp", _counting(Transformer.mlp, reading, "branches")),
    ]
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield reading


def _counting(plain: Callable[..., Any], reading: Reading, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        setattr(reading, name, getattr(reading, name) + 1)
        return plain(*arguments, **named)

    return call


def decode_batch(
    engine: unmask.Engine, prompts: Sequence[list[int]], decode: unmask.DecodeSpec, policy: Any, scripts: Any
) -> tuple[float, dict[int, list[Any]], list[unmask.Generation]]:
    """Decode all prompts together; return seconds, what each step of each request wrote, and the answers."""
    rule = ForcedTokens(scripts) if scripts is not None else None
    written: dict[int, list[Any]] = {number: [] for number in range(len(prompts))}
    answers = {}
    start = CLOCK()
    for event in engine.stream(prompts, decode, policy, batch_size=len(prompts), rule=rule):
        if isinstance(event, unmask.Finished):
            answers[event.request] = event.generation
        elif event.positions:
            written[event.request].append(list(zip(event.positions, event.tokens, strict=True)))
    return CLOCK() - start, written, [answers[number] for number in range(len(prompts))]


def measure_batch(
    engine: unmask.Engine, batch: int, new_tokens: int, repeats: int, chosen: set[str]
) -> list[dict[str, Any]]:
    """Policies beside the baseline at one batch size."""
    generator = torch.Generator().manual_seed(batch)
    lengths = [PROMPT - 24 + 13 * number % 48 for number in range(batch)]
    prompts = [torch.randint(0, engine.mask_token, (each,), generator=generator).tolist() for each in lengths]
    decode = unmask.DecodeSpec(max_new_tokens=new_tokens, stop_tokens=())
    known = policies(engine.config.num_layers)
    names = ["k1", *(name for name in known if name in (chosen or {"k2_output", "k2_residual", "trim_0"}))]
    _, scripts, first = decode_batch(engine, prompts, decode, None, None)
    readings, flops = {}, {}
    for name in names:
        with counted_reading() as readings[name]:
            _, _, answers = decode_batch(engine, prompts, decode, known[name], scripts)
        assert [each.ids for each in answers] == [each.ids for each in first], (
            "forced tokens are the baseline's"
        )
        prices = (total_price(each.ledger, engine.config.shape, 4) for each in answers)
        flops[name] = sum(price.flops for price in prices)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names if turn % 2 else reversed(names):
            seconds[name].append(decode_batch(engine, prompts, decode, known[name], scripts)[0])
    return [
        {
            "batch": batch,
            "policy": name,
            "gain": asdict(Ratio.of(seconds["k1"], seconds[name])),
            "allowed": flops["k1"] / flops[name],
            "seconds": median(seconds[name]),
            "forwards": readings[name].forwards,
            "passes": readings[name].branches / (2 * engine.config.num_layers),
        }
        for name in names
    ]


def show_batches(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'batch':>5} {'policy':14} {'gain':>24} {'allowed':>8} {'share':>6} {'forwards':>9} {'passes':>7}"
    )
    for row in rows:
        ratio = row["gain"]
        gain = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
        share = ratio["median"] / row["allowed"]
        print(
            f"{row['batch']:5} {row['policy']:14} {gain:>24} {row['allowed']:8.3f} {share:6.2f} "
            f"{row['forwards']:9} {row['passes']:7.1f}"
        )


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'policy':14} {'ms/step':>8} {'speed-up':>24} {'ceiling':>8} {'share':>6} {'skipped':>8} {'free work':>10}"
    )
    for row in rows:
        ratio = row["speedup"]
        speedup = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
        print(
            f"{row['policy']:14} {row['ms_per_step']:8.1f} {speedup:>24} {row['ceiling']:8.3f} "
            f"{row['share_of_ceiling']:6.2f} {row['work_skipped']:8.1%} {row['free_branch_rows']:10.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="0.5b")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--policies", default="", help="names such as k3_residual,trim_0; all without it")
    parser.add_argument("--batches", type=int, nargs="*", help="whole decodings of so many requests together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads > 1:
        global CLOCK
        CLOCK = time.perf_counter
    engine = unmask.load(random_checkpoint(options.shape, options.cache), device="cpu", dtype="float32")
    chosen = set(filter(None, options.policies.split(",")))
    unknown = chosen - set(policies(engine.config.num_layers))
    if unknown:
        parser.error(f"no such policy: {', '.join(sorted(unknown))}")
    if options.batches:
        rows = [
            row
            for batch in options.batches
            for row in measure_batch(engine, batch, options.new_tokens, options.repeats, chosen)
        ]
        show_batches(rows)
    else:
        rows = measure(engine, options.new_tokens, options.repeats, chosen)
        show(rows)
    settings = {"shape": options.shape, "repeats": options.repeats, "new_tokens": options.new_tokens}
    settings["clock"] = CLOCK.__name__
    print(json.dumps({"benchmark": "reuse", **settings, "machine": machine(), "rows": rows}))


if __name__ == "__main__":
    main()
