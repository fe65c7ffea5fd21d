"""Tokens per second of Unmask's engine beside a plain sampler and beside what the machine could do at best.

A matrix of shapes, threads, batches, prompt lengths and kinds of ending. In every case the engine and the
transformers-style sampler of reference.py decode the same prompts with the same weights in fp32, in turns, in
one process; the ids of every round are compared before any figure is given. A batch is decoded without the
block cache, where alone the published batch gives rows that do not depend on each other (see reference.py).
Kinds: `limit` answers run to --new-tokens; `stop` answers end about halfway, at stop tokens chosen for that.

    python benchmarks/decode.py                      # the default selection, about ten minutes where nothing else runs
    python benchmarks/decode.py --all                # everything that memory allows, hours
    python benchmarks/decode.py --all --shapes tiny  # the matrix of one shape
    python benchmarks/decode.py --shapes 0.5b --batches 1 4 --prompt-lengths 96

Where lists are given without --all, an axis without a list takes its first value. Figures are taken on the
CPU clock for one thread and on the wall clock for more. `of limit` is the least time that the engine's own
forwards could take (limits.py) over the time they took; `bound` says whether memory or compute sets most of
it, and how much. A prompt is cut to the whole blocks that the model's context holds beside the answer.

Work is counted beside the clock: a step is a forward of one request, so four requests that share a forward
count four. With whole blocks as prompts and one token more than whole blocks asked for, both must take the
same steps in a batch of one that runs to its limit; the reference takes more where rows of a batch wait for
each other and where a block goes on behind a stop token.

Key figures go to history.jsonl (see history.py). The last line is one JSON document; exit code 1 if the
tokens of a case differ. `honesty.py` shows that the reference is no slower than transformers.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psutil
import torch

import history
import unmask
from contenders import Contenders, Decoding, Ids, Outcome, TokensDifferError, refuse_difference
from history import Case
from limits import FP32, limit_of, recorded, this_machine
from random_checkpoint import DEFAULT_CACHE, config_of
from timing import Sample, clock, fair_clock, interleave, machine, ratios
from unmask.cost import Device

AXES: dict[str, tuple[Any, ...]] = {
    "shapes": ("0.5b", "tiny", "embedded", "1.5b"),
    "threads": (1, 2),
    "batches": (1, 4, 16),
    "prompt_lengths": (64, 512, 2048),
    "kinds": ("limit", "stop"),
}
BLOCK = 32
STOPPING = (0.4, 0.6)
"""Where in an answer its stop token should first occur."""
SPARE = 1.15
"""Memory to have for every byte known to be needed."""
WORD_PROBLEMS = Path(unmask.__file__).parent / "assets" / "tasks" / "arith.jsonl"
STEPS = ("prefill", "block", "sub", "commit")


@dataclass(frozen=True)
class Without:
    """A case that has no figures, and why."""

    reason: str
    case: Case
    sentence: str

    def __str__(self) -> str:
        return f"{self.case}: {self.reason}. {self.sentence}"


Found = dict[str, Any] | Without


def selected(options: argparse.Namespace) -> list[Case]:
    """The cases that the command line asks for; without any list, those worth ten minutes."""
    named = {axis: getattr(options, axis) for axis in AXES}
    if options.all or any(named.values()):
        lists = [named[axis] or (values if options.all else values[:1]) for axis, values in AXES.items()]
        return [Case(*values) for values in product(*lists)]
    return [case for values in product(*AXES.values()) if worth_its_time(case := Case(*values))]


def worth_its_time(case: Case) -> bool:
    """Whether a case belongs to the default selection."""
    shortest = (case.batch, case.prompt) == (1, 64)
    if case.shape == "1.5b":
        return False
    if case.threads > 1:
        return shortest and case.kind == "limit"
    if case.kind == "stop":
        return shortest and case.shape == "0.5b"
    return case.batch * case.prompt <= (512 if case.shape == "0.5b" else 2048)


def needed_bytes(case: Case, new_tokens: int) -> int:
    """Memory of both contenders: weights twice, keys, and the reference's logits of all rows fed."""
    config = config_of(case.shape)
    hidden, heads, layers = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    kv_width = 2 * config["num_key_value_heads"] * hidden // heads
    ffn, vocabulary = config["intermediate_size"], config["vocab_size"]
    weights = vocabulary * hidden + layers * hidden * (2 * hidden + kv_width + 3 * ffn)
    keys = case.batch * (case.prompt + new_tokens) * layers * kv_width
    logits = case.batch * max(case.prompt, 3 * BLOCK) * vocabulary
    activations = case.batch * case.prompt * (3 * ffn + 8 * hidden)
    return round(SPARE * FP32 * (2 * weights + 2 * keys + logits + activations))


def fitting(case: Case, new_tokens: int) -> Case:
    """The case with no more prompt than the model's context holds beside the answer, in whole blocks."""
    room = (config_of(case.shape)["max_position_embeddings"] - new_tokens) // BLOCK * BLOCK
    return replace(case, prompt=min(case.prompt, room))


def prompts_of(case: Case, engine: unmask.Engine, seed: int) -> Ids:
    """Random tokens for random weights, solved word problems and an open one for trained weights."""
    if case.shape != "embedded":
        draw = torch.Generator().manual_seed(seed)
        size = (case.batch, case.prompt)
        return torch.randint(0, engine.mask_token, size, generator=draw).tolist()
    rows = [json.loads(line) for line in WORD_PROBLEMS.read_text(encoding="utf-8").splitlines()]
    prompts = []
    for number in range(seed * case.batch, (seed + 1) * case.batch):
        turned = rows[number % len(rows) :] + rows[: number % len(rows)]
        solved = "".join(
            f"Question: {row['question']}\nAnswer: {row['answer']}\n\n"
            for row in turned[1 : 2 + case.prompt // BLOCK]
        )
        prompts.append(
            engine.tokenizer.encode(f"{solved}Question: {turned[0]['question']}\nAnswer:")[-case.prompt :]
        )
    return prompts


def stop_tokens(answers: Ids) -> tuple[int, ...]:
    """For every answer the token that first occurs within STOPPING, or as near to its middle as there is one."""
    chosen = set()
    for ids in answers:
        first = {token: place / len(ids) for place, token in reversed(list(enumerate(ids)))}
        chosen.add(min(first, key=lambda token: abs(first[token] - sum(STOPPING) / 2)))
    return tuple(sorted(chosen))


def race(
    decodings: dict[str, Decoding], prompts: Ids, spec: unmask.DecodeSpec, repeats: int
) -> tuple[dict[str, Outcome], dict[str, list[Sample]]]:
    """Decode in turns on the clock, and compare the ids of every round."""
    outcomes: dict[str, Outcome] = {}

    def contender(name: str) -> Callable[[], Sample]:
        def run() -> None:
            outcomes[name] = decodings[name](prompts, spec)

        def sample() -> Sample:
            seconds = clock(run)
            if len(outcomes) == len(decodings):
                refuse_difference(outcomes)
            return seconds

        return sample

    samples = interleave({name: contender(name) for name in decodings}, repeats)
    return outcomes, samples


def measure(
    case: Case, contenders: Contenders, device: Device, options: argparse.Namespace
) -> dict[str, Any]:
    """Count and time one case; counting warms the engine up, one token the reference."""
    engine, decodings = contenders.engine, contenders.decodings
    prompts = prompts_of(case, engine, options.seed)
    spec = unmask.DecodeSpec(
        max_new_tokens=options.new_tokens,
        threshold=options.threshold,
        cache="dual" if case.batch == 1 else "none",
        stop_tokens=(),
    )
    ids, forwards = recorded(engine, prompts, spec)
    if case.kind == "stop":
        spec = msgspec.structs.replace(spec, stop_tokens=stop_tokens(ids))
        ids, forwards = recorded(engine, prompts, spec)
    decodings["reference"](prompts, msgspec.structs.replace(spec, max_new_tokens=1))
    outcomes, samples = race(decodings, prompts, spec, options.repeats)
    assert outcomes["unmask"].ids == ids, "the forwards counted are those of the decoding timed"
    limit = limit_of(forwards, engine.config.shape, device)
    on, tokens = fair_clock(case.threads), sum(map(len, ids))
    seconds = {name: median(getattr(sample, on) for sample in taken) for name, taken in samples.items()}
    return {
        **asdict(case),
        "cache": spec.cache,
        "tokens": tokens,
        "forwards": len(forwards),
        "clock": on,
        **{
            name: {"tokens_per_second": tokens / seconds[name], **outcome.work}
            for name, outcome in outcomes.items()
        },
        **{
            f"speedup_{name}": asdict(ratio) for name, ratio in ratios(samples, "reference", "unmask").items()
        },
        "limit": {**asdict(limit), "bound": limit.bound, "reached": limit.seconds / seconds["unmask"]},
    }


def header() -> str:
    """The head of the table."""
    return (
        f"{'shape':8} {'threads':>7} {'batch':>5} {'prompt':>6} {'kind':5} {'tokens':>6} "
        f"{'unmask':>9} {'reference':>9} {'speed-up':>20} {'of limit':>8} {'bound':12} "
        f"{'steps':>12} {'reference':>12}"
    )


def line(found: dict[str, Any]) -> str:
    """One case of the table."""
    ratio = found[f"speedup_{found['clock']}"]
    speedup = f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    steps = {
        name: "+".join(str(found[name]["steps"].get(kind, 0)) for kind in STEPS)
        for name in ("unmask", "reference")
    }
    limit = found["limit"]
    memory = limit["memory_seconds"] / limit["seconds"]
    bound = f"{limit['bound']} {max(memory, 1 - memory):.0%}"
    return (
        f"{found['shape']:8} {found['threads']:7} {found['batch']:5} {found['prompt']:6} {found['kind']:5} "
        f"{found['tokens']:6} {found['unmask']['tokens_per_second']:9.2f} "
        f"{found['reference']['tokens_per_second']:9.2f} {speedup:>20} {limit['reached']:8.0%} "
        f"{bound:12} {steps['unmask']:>12} {steps['reference']:>12}"
    )


def key_figures(found: dict[str, Any]) -> dict[str, Any]:
    """What the history keeps of a case."""
    ratio = found[f"speedup_{found['clock']}"]
    return {
        **{name: found[name] for name in ("shape", "threads", "batch", "prompt", "kind", "tokens")},
        "speedup": [round(ratio[name], 4) for name in ("median", "low", "high")],
        "of_limit": round(found["limit"]["reached"], 4),
        "tokens_per_second": [round(found[name]["tokens_per_second"], 2) for name in ("unmask", "reference")],
    }


def run_shape(cases: Sequence[Case], device: Device, options: argparse.Namespace) -> Iterator[Found]:
    """Measure the cases of one shape with one loading, or say why one has no figures."""
    available = psutil.virtual_memory().available
    contenders = None
    for case in cases:
        needed = needed_bytes(case, options.new_tokens)
        if needed > available:
            yield Without(
                "skipped", case, f"It needs {needed / 1e9:.1f} GB; {available / 1e9:.1f} GB are free."
            )
            continue
        contenders = contenders or Contenders.load(case.shape, options.cache)
        try:
            yield measure(fitting(case, options.new_tokens), contenders, device, options)
        except TokensDifferError as difference:
            yield Without("refused", case, str(difference))


def measured_devices(cases: Sequence[Case]) -> dict[int, Device]:
    """The machine's rates with one thread and with every number of threads that is used."""
    devices = {}
    for threads in sorted({1, *(case.threads for case in cases)}):
        torch.set_num_threads(threads)
        devices[threads] = device = this_machine(threads)
        print(
            f"{threads} thread{'s' * (threads > 1)}, {fair_clock(threads)} clock: "
            f"{device.bytes_per_second / 1e9:.1f} GB/s read from DRAM, "
            f"{device.flops_per_second / 1e9:.1f} GFLOP/s in fp32 products"
        )
    return devices


def busy(devices: dict[int, Device]) -> bool:
    """Whether several threads were slower than one: others had the cores, and the wall clock counts them."""
    return any(device.flops_per_second < devices[1].flops_per_second for device in devices.values())


def run(cases: Sequence[Case], devices: dict[int, Device], options: argparse.Namespace) -> list[Found]:
    """Measure all cases, and print each when it is done."""
    found: list[Found] = []
    print(f"\n{header()}", flush=True)
    in_order = sorted(cases, key=lambda case: case.threads)
    for (threads, _), group in groupby(in_order, key=lambda case: (case.threads, case.shape)):
        torch.set_num_threads(threads)
        for one in run_shape(list(group), devices[threads], options):
            print(one if isinstance(one, Without) else line(one), flush=True)
            found.append(one)
    return found


def footnotes(found: Sequence[dict[str, Any]]) -> str:
    """What a reader of the table must know."""
    ratio = found[0]["speedup_wall"]
    return (
        f"Tokens per second; steps are prefill+block+sub+commit. Speed-up: median of {ratio['pairs']} pairs and an "
        f"interval that covers it with {ratio['coverage']:.0%}.\nThe limit counts every weight as read from DRAM "
        "once a forward; tiny and embedded fit in cache, so where memory bounds them it is no true limit."
    )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="the whole matrix, narrowed by the lists given")
    parser.add_argument("--shapes", nargs="+", choices=AXES["shapes"])
    parser.add_argument("--threads", type=int, nargs="+")
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--prompt-lengths", type=int, nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=AXES["kinds"])
    parser.add_argument("--repeats", type=int, default=5, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where checkpoints are kept")
    parser.add_argument("--no-history", action="store_true", help="leave history.jsonl as it is")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    cases = selected(options)
    devices = measured_devices(cases)
    if busy(devices):
        print("This machine is busy: several threads are slower than one, so figures of several mean little.")
    found = run(cases, devices, options)
    measured = [one for one in found if not isinstance(one, Without)]
    without = [one for one in found if isinstance(one, Without)]
    settings = {name: getattr(options, name) for name in ("repeats", "new_tokens", "threshold", "seed")}
    report: dict[str, Any] = {"benchmark": "decode", "dtype": "float32", **settings, "busy": busy(devices)}
    if measured:
        print(footnotes(measured))
        if not options.no_history:
            history.append({**report, "cases": [key_figures(one) for one in measured]})
    report["devices"] = {threads: asdict(device) for threads, device in devices.items()}
    report |= {"cases": measured, "without_figures": [asdict(one) for one in without]}
    print(json.dumps(report | machine()))
    return 1 if any(one.reason == "refused" for one in without) else 0


if __name__ == "__main__":
    raise SystemExit(main())
