"""Tokens per second of whole-canvas models beside the published samplers' loops, under each cache.

Random weights of one shape as LLaDA and as Dream, in fp32; the engine and the sampler of canvas_reference.py, which
gives the tokens and forwards of the published vectors, decode the same prompt in turns in one process. The tokens of
every round are compared before any figure is given. What is decoded is fixed by steps (LLaDA's low confidence, Dream's
entropy) or, with --threshold, by a threshold.

    python benchmarks/canvas.py                                   # about twenty minutes where nothing else runs
    python benchmarks/canvas.py --shapes tiny                     # under a minute
    python benchmarks/canvas.py --shapes 0.5b --families llada --caches dual --threshold 0.9

Work is counted beside the clock: forwards of the whole canvas, of the sub-block and what follows it, and of the
sub-block, and the positions that they fed. They are equal on both sides but for steps of Dream's that write nothing,
which the engine does not take. `of limit` is the least time that the engine's own forwards could take (limits.py) over
the time they took. It goes by fp32 products of torch; where packed products are faster than those, as on AMD, it
exceeds 100 %.

The last line is one JSON document; exit code 1 if the tokens of a case differ, or if a speed-up is below --at-least.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

import unmask
from canvas_reference import Forwards, Settings, decode_dream, decode_llada
from contenders import Decoding, Ids, Outcome, TokensDifferError
from decode import race
from limits import limit_of, recorded, this_machine
from random_checkpoint import DEFAULT_CACHE, random_checkpoint
from reference_network import ReferenceNetwork
from timing import fair_clock, machine, ratios
from unmask.conformance.published import CANVAS_KINDS, published_by
from unmask.cost import Device
from unmask.spec.build import build

FAMILIES, CACHES = ("llada", "dream"), ("none", "prefix", "dual")
KINDS = tuple(CANVAS_KINDS.values())


@dataclass(frozen=True)
class Case:
    """One comparison."""

    shape: str
    family: str
    cache: str

    def __str__(self) -> str:
        return f"{self.family} {self.shape}, cache {self.cache}"


def published_settings(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """The settings of a case in its publisher's words; without a cache Dream has no blocks."""
    plain = case.family == "dream" and case.cache == "none"
    return {
        "gen_length" if case.family == "llada" else "max_new_tokens": options.new_tokens,
        "block_length": None if plain else options.block,
        "cache": case.cache,
        "steps": options.steps,
        "threshold": options.threshold,
        "alg": "entropy" if options.threshold is None else "confidence_threshold",
        "eps": 1e-3,
        "remasking": "low_confidence",
        "stop_tokens": [],
    }


def unmask_decoding(engine: unmask.Engine) -> Decoding:
    """Unmask's engine."""

    def run(prompts: Ids, spec: unmask.DecodeSpec) -> Outcome:
        answers = engine.generate(prompts, spec, batch_size=len(prompts))
        taken: Forwards = Counter()
        for answer in answers:
            for work, count in answer.ledger.entries.items():
                taken[CANVAS_KINDS[work.kind], work.rows] += count
        return Outcome([answer.ids for answer in answers], counted(taken))

    return run


def reference_decoding(network: ReferenceNetwork, case: Case, settings: dict[str, Any]) -> Decoding:
    """The published loop."""
    names = ("block_length", "cache", "steps", "threshold")
    new_tokens = settings["gen_length" if case.family == "llada" else "max_new_tokens"]
    told = Settings(new_tokens=new_tokens, alg=settings["alg"], **{name: settings[name] for name in names})

    def run(prompts: Ids, spec: unmask.DecodeSpec) -> Outcome:  # noqa: ARG001 (its own words say the same)
        if case.family == "llada":
            return Outcome(*_with_counts(decode_llada(network, prompts, told)))
        ids, forwards = decode_dream(network, prompts[0], told)
        return Outcome([ids], counted(forwards))

    return run


def _with_counts(found: tuple[Ids, Forwards]) -> tuple[Ids, dict[str, dict[str, int]]]:
    return found[0], counted(found[1])


def counted(forwards: Forwards) -> dict[str, dict[str, int]]:
    """Forwards by kind, and the positions that they fed."""
    calls: Counter[str] = Counter()
    for (kind, _), count in forwards.items():
        calls[kind] += count
    fed = sum(rows * count for (_, rows), count in forwards.items())
    return {"forwards": {kind: calls[kind] for kind in KINDS}, "positions": {"fed": fed}}


def measure(
    case: Case, engine: unmask.Engine, network: ReferenceNetwork, device: Device, options: argparse.Namespace
) -> dict[str, Any]:
    """Count and time one case; counting warms both up."""
    settings = published_settings(case, options)
    spec = build(unmask.DecodeSpec, published_by(case.family).decode(settings), "Decode settings")
    draw = torch.Generator().manual_seed(options.seed)
    prompts: Ids = torch.randint(1, engine.mask_token or 1, (1, options.prompt), generator=draw).tolist()
    decodings = {
        "unmask": unmask_decoding(engine),
        "reference": reference_decoding(network, case, settings),
    }
    ids, forwards = recorded(engine, prompts, spec)
    outcomes, samples = race(decodings, prompts, spec, options.repeats)
    assert outcomes["unmask"].ids == ids, "the forwards counted are those of the decoding timed"
    on, tokens = fair_clock(options.threads), sum(map(len, ids))
    seconds = {name: median(getattr(sample, on) for sample in taken) for name, taken in samples.items()}
    limit = limit_of(forwards, engine.config.shape, device)
    return {
        **asdict(case),
        "tokens": tokens,
        "clock": on,
        **{
            name: {"tokens_per_second": tokens / seconds[name], **outcome.work}
            for name, outcome in outcomes.items()
        },
        **{
            f"speedup_{name}": asdict(ratio) for name, ratio in ratios(samples, "reference", "unmask").items()
        },
        "limit": {
            **asdict(limit),
            "bound": limit.bound,
            "reached": limit.seconds / seconds["unmask"],
        },
    }


def header() -> str:
    """The head of the table."""
    return (
        f"{'shape':6} {'family':6} {'cache':6} {'tokens':>6} {'unmask':>8} {'reference':>9} {'speed-up':>20} "
        f"{'of limit':>8} {'full+tail+sub':>14} {'reference':>12} {'fed':>6} {'reference':>9}"
    )


def line(found: dict[str, Any]) -> str:
    """One case of the table."""
    ratio, limit = found[f"speedup_{found['clock']}"], found["limit"]
    speedup = f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    taken = {
        name: "+".join(str(found[name]["forwards"][kind]) for kind in KINDS)
        for name in ("unmask", "reference")
    }
    fed = {name: found[name]["positions"]["fed"] for name in ("unmask", "reference")}
    return (
        f"{found['shape']:6} {found['family']:6} {found['cache']:6} {found['tokens']:6} "
        f"{found['unmask']['tokens_per_second']:8.2f} {found['reference']['tokens_per_second']:9.2f} {speedup:>20} "
        f"{limit['reached']:8.0%} {taken['unmask']:>14} {taken['reference']:>12} "
        f"{fed['unmask']:6} {fed['reference']:9}"
    )


def run(cases: Sequence[Case], options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all cases, and print each when it is done; also the sentences on those whose tokens differ."""
    device = this_machine(options.threads)
    print(
        f"{device.bytes_per_second / 1e9:.1f} GB/s read from DRAM, "
        f"{device.flops_per_second / 1e9:.1f} GFLOP/s in fp32 products\n\n{header()}",
        flush=True,
    )
    measured: list[dict[str, Any]] = []
    refused: list[str] = []
    loaded: tuple[str, unmask.Engine, ReferenceNetwork] | None = None
    for case in cases:
        name = f"{case.family}-{case.shape}"
        if loaded is None or loaded[0] != name:
            loaded = None
            folder = random_checkpoint(name, options.cache_folder)
            engine = unmask.load(folder, device="cpu", dtype="float32")
            loaded = name, engine, ReferenceNetwork.load(folder)
        try:
            measured.append(measure(case, loaded[1], loaded[2], device, options))
            print(line(measured[-1]), flush=True)
        except TokensDifferError as difference:
            refused.append(f"{case}: refused. {difference}")
            print(refused[-1], flush=True)
    return measured, refused


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=("tiny", "0.5b"), default=("tiny", "0.5b"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--caches", nargs="+", choices=CACHES, default=CACHES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--block", type=int, default=32, help="positions of a sub-block")
    parser.add_argument("--steps", type=int, default=16, help="of the whole answer")
    parser.add_argument("--threshold", type=float, help="instead of steps")
    parser.add_argument("--repeats", type=int, default=6, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--at-least", type=float, default=0.0, help="speed-up below which the exit code is 1")
    parser.add_argument("--cache-folder", type=Path, default=DEFAULT_CACHE, help="where checkpoints are kept")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    torch.set_num_threads(options.threads)
    cases = [Case(*values) for values in product(options.shapes, options.families, options.caches)]
    measured, refused = run(cases, options)
    if measured:
        ratio = measured[0]["speedup_wall"]
        print(
            f"Speed-up: median of {ratio['pairs']} pairs and an interval that covers it with {ratio['coverage']:.0%}."
        )
    slow = [found for found in measured if found[f"speedup_{found['clock']}"]["median"] < options.at_least]
    settings = {
        name: getattr(options, name)
        for name in ("prompt", "new_tokens", "block", "steps", "threshold", "repeats", "seed", "threads")
    }
    report = {"benchmark": "canvas", "dtype": "float32", **settings, "cases": measured, "refused": refused}
    print(json.dumps(report | machine()))
    return 1 if refused or slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
