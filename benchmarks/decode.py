"""Tokens per second of Unmask's engine beside the plain sampler of reference.py, token for token equal.

Both decode the same random prompts with the same random weights, in turns, in one process; the ids of
every round are compared before any figure is given. Cases: one request with the block cache (the
default), and four together without it (where alone the published batch gives rows that do not depend
on each other, see reference.py). The clock holds decoding only. Work is counted beside it: a step is a
forward of one request, so four requests that share a forward count four.

    python benchmarks/decode.py --shape 0.5b --repeats 5

With prompts of whole blocks and one token more than whole blocks asked for, both must take the same
steps; the reference takes more where rows of a batch wait for each other. The last line is one JSON
document. `honesty.py` shows that the reference is no slower than transformers.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import reference
import unmask
from random_checkpoint import DEFAULT_CACHE, SHAPES, random_checkpoint
from reference_network import ReferenceNetwork
from timing import Sample, clock, interleave, machine, ratios

Ids = list[list[int]]
Work = dict[str, dict[str, int]]
BLOCK_CACHE = {1: True, 4: False}
"""Whether the block cache is on, by batch."""


@dataclass(frozen=True)
class Outcome:
    """What a decoding gave and what it took."""

    ids: Ids
    work: Work


Decoding = Callable[[Ids, int, bool], Outcome]
"""Prompts, new tokens and block cache in; the outcome out."""


def unmask_decoding(folder: Path, threshold: float) -> Decoding:
    """Unmask's engine."""
    engine = unmask.load(folder, device="cpu", dtype="float32")

    def run(prompts: Ids, new_tokens: int, block_cache: bool) -> Outcome:
        spec = unmask.DecodeSpec(
            max_new_tokens=new_tokens, threshold=threshold, block_cache=block_cache, stop_tokens=()
        )
        answers = engine.generate(prompts, decode=spec, batch_size=len(prompts))
        ledger = answers[0].ledger
        for answer in answers[1:]:
            ledger = ledger.merged(answer.ledger)
        return Outcome([answer.ids for answer in answers], {"steps": ledger.steps(), "tokens": ledger.rows()})

    return run


def reference_decoding(folder: Path, threshold: float) -> Decoding:
    """The sampler of reference.py."""
    network = ReferenceNetwork.load(folder)

    def run(prompts: Ids, new_tokens: int, block_cache: bool) -> Outcome:
        settings = reference.Settings(threshold=threshold, block_cache=block_cache)
        ids, work = reference.decode(network, prompts, [new_tokens] * len(prompts), settings)
        return Outcome(ids, {name: dict(counts) for name, counts in vars(work).items()})

    return run


def refuse_difference(outcomes: dict[str, Outcome]) -> None:
    """Stop where the contenders' ids differ."""
    ours, theirs = outcomes["unmask"].ids, outcomes["reference"].ids
    for row, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left != right:
            place = next(
                (i for i, pair in enumerate(zip(left, right, strict=False)) if len(set(pair)) == 2), -1
            )
            raise SystemExit(
                f"Request {row} of {len(ours)}: the tokens differ from position {place} on, so no speed is given; "
                "either a bug or a tie within rounding on this machine (then another --seed agrees)."
            )


def measure(decodings: dict[str, Decoding], prompts: Ids, block_cache: bool, options: Any) -> dict[str, Any]:
    """Time one case."""
    outcomes: dict[str, Outcome] = {}

    def contender(name: str) -> Callable[[], Sample]:
        def run() -> None:
            outcomes[name] = decodings[name](prompts, options.new_tokens, block_cache)

        def sample() -> Sample:
            seconds = clock(run)
            if len(outcomes) == len(decodings):
                refuse_difference(outcomes)
            return seconds

        return sample

    for decoding in decodings.values():
        decoding(prompts, 1, block_cache)
    samples = interleave({name: contender(name) for name in decodings}, options.repeats)
    tokens = sum(map(len, outcomes["unmask"].ids))
    case: dict[str, Any] = {"batch": len(prompts), "block_cache": block_cache, "tokens": tokens}
    print(f"batch {len(prompts)}, block cache {'on' if block_cache else 'off'}, {tokens} new tokens:")
    for name, outcome in outcomes.items():
        wall, cpu = (tokens / median(getattr(s, on) for s in samples[name]) for on in ("wall", "cpu"))
        case[name] = {"tokens_per_second": wall, "tokens_per_cpu_second": cpu, **outcome.work}
        steps = ", ".join(f"{count} {kind}" for kind, count in outcome.work["steps"].items() if count)
        print(f"  {name:9s} {wall:8.2f} tokens/s, {cpu:8.2f} tokens/CPU s; steps: {steps}")
    for name, ratio in ratios(samples, "reference", "unmask").items():
        case[f"speedup_{name}"] = asdict(ratio)
        print(f"  speed-up of unmask, {name} clock: {ratio}")
    return case


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="0.5b")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--batches", type=int, nargs="+", choices=BLOCK_CACHE, default=list(BLOCK_CACHE))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=96)
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    folder = random_checkpoint(options.shape, options.cache)
    decodings = {
        "unmask": unmask_decoding(folder, options.threshold),
        "reference": reference_decoding(folder, options.threshold),
    }
    draw = torch.Generator().manual_seed(options.seed)
    most, mask = max(BLOCK_CACHE), SHAPES[options.shape]["mask_token_id"]
    prompts: Ids = torch.randint(0, mask, (most, options.prompt_tokens), generator=draw).tolist()
    cases = [measure(decodings, prompts[:batch], BLOCK_CACHE[batch], options) for batch in options.batches]
    report = {"benchmark": "decode", "dtype": "float32"}
    report |= {name: value for name, value in vars(options).items() if name not in ("cache", "batches")}
    print(json.dumps(report | {"cases": cases} | machine()))


if __name__ == "__main__":
    main()
