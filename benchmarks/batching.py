"""What decoding requests together buys, on the embedded model or a random one, beside what products allow it to buy.

Three parts, each of two contenders that take turns and must give equal answers:

- `many`: 16 requests at a time against one. One request feeds 32 rows a forward already, and products that
  are bound by arithmetic take as long for 512 rows as sixteen times for 32: beyond the products' peak rate only
  what is not a product can be shared. So the products of the very forwards that were counted are timed on
  their own, the fastest way each, in the same rounds: `products alone` is their ratio, and `limit` is what
  would be gained if batch 16 took no time but its products'.
- `mixed`: requests of several tasks with short and long answers in random order. Continuous: one call, a
  free slot is filled at once. Static: the same engine on 16 at a time, the next when the last of them is done.
- `sweep`: the accuracy part of a recipe, task by task and configuration by configuration, as a sweep decodes
  it against one request at a time, every choice scored in a call of its own.

    python benchmarks/batching.py --repeats 7
    python benchmarks/batching.py --parts sweep --repeats 3 --configurations k1_first k2_middle
    python benchmarks/batching.py --parts mixed --shape 0.5b --batch 8 --requests 24 --long 64 --repeats 3

The CPU clock counts for one thread, the wall clock for more. The last line is one JSON document.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import torch

import unmask
from counting import Ids, LayerProducts, clock_of, refuse_difference, sizes, watched
from embedded import TASKS
from growth import EMBEDDED, load
from random_checkpoint import DEFAULT_CACHE, SHAPES
from timing import Ratio, Sample, clock, interleave, machine, ratios
from unmask.engine.prompt import Prompt, Request
from unmask.engine.score import ScoreRequest
from unmask.spec import DecodeSpec
from unmask.spec.recipe import Recipe, TaskSpec, read_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "00_baseline_embedded"
MIXED = ("arith", "choice_text", "arith_20")
STOP = ("Question:",)
"""Where unmask_arith.yaml ends an answer, beside the model's own end."""
TOLERANCE = 1e-4
"""Largest difference of two log likelihoods: rows of a batch are summed in another order than a single one."""
Run = Callable[[], Ids]


def task_rows(name: str, count: int | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TASKS / f"{name}.jsonl").read_text().splitlines()[:count]]


def prompt_of(row: Mapping[str, Any]) -> str:
    if "question" in row:
        return f"Question: {row['question']}\nAnswer:"
    return str(row["prompt"])


def contest(
    runs: Mapping[str, Run], products: LayerProducts, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Count both, refuse different tokens, then clock them and the products of their forwards in turns."""
    on, seconds_of = clock_of(options.threads)
    answers, counted = dict[str, Ids](), dict[str, Counter[int]]()
    for name, run in runs.items():
        with watched() as forwards:
            answers[name] = run()
        counted[name] = sizes(forwards)
    refuse_difference(answers)
    least: dict[int, float] = {}

    def contender(name: str) -> Callable[[], Sample]:
        def run() -> None:
            answers[name] = runs[name]()

        def sample() -> Sample:
            taken = clock(run)
            refuse_difference(answers)
            return taken

        return sample

    def time_products() -> None:
        for rows in sorted({rows for count in counted.values() for rows in count}):
            least[rows] = min(products.seconds(rows, seconds_of), least.get(rows, float("inf")))

    contenders = {name: contender(name) for name in runs} | {"products": lambda: clock(time_products)}
    samples = interleave(contenders, options.repeats)
    (base, base_count), (name, count) = counted.items()
    alone = {each: sum(least[rows] * times for rows, times in counted[each].items()) for each in counted}
    tokens = sum(map(len, answers[name]))
    return {
        "tokens": tokens,
        "contenders": {
            each: {
                "forwards": sum(counted[each].values()),
                "rows": sum(rows * times for rows, times in counted[each].items()),
                "seconds": (seconds := median(getattr(sample, on) for sample in samples[each])),
                "tokens_per_second": tokens / seconds,
                "product_seconds": alone[each],
            }
            for each in runs
        },
        "forwards_ratio": sum(base_count.values()) / sum(count.values()),
        "speedup": asdict(ratios(samples, base, name)[on]),
        "products_alone": alone[base] / alone[name],
        "limit": median(getattr(sample, on) for sample in samples[base]) / alone[name],
    }


def many(engine: unmask.Engine, products: LayerProducts, options: argparse.Namespace) -> dict[str, Any]:
    """A batch against one request at a time."""
    prompts = prompts_of(engine, ("arith",), options)

    def together(batch: int) -> Run:
        return lambda: [
            answer.ids for answer in engine.generate(prompts, {"max_new_tokens": 160}, batch_size=batch)
        ]

    runs = {f"batch {batch}": together(batch) for batch in (1, options.batch)}
    return contest(runs, products, options)


def prompts_of(engine: unmask.Engine, tasks: Sequence[str], options: argparse.Namespace) -> list[Prompt]:
    """Prompts of some tasks in turn, or random ones of about their length where there is no tokenizer."""
    if options.shape != EMBEDDED:
        draw = random.Random(options.seed)
        top = engine.mask_token
        return [draw.choices(range(top), k=draw.randint(32, 96)) for _ in range(options.requests)]
    each = -(-options.requests // len(tasks))
    rows = zip(*(task_rows(name, each) for name in tasks), strict=True)
    return [prompt_of(row) for together in rows for row in together][: options.requests]


def mixed_requests(engine: unmask.Engine, options: argparse.Namespace) -> list[Request]:
    """Requests of all tasks in random order, every other one with a short answer."""
    prompts = prompts_of(engine, MIXED, options)
    lengths = [options.short if index % 2 else options.long for index in range(options.requests)]
    requests = [Request(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
    random.Random(options.seed).shuffle(requests)
    return requests


def mixed(engine: unmask.Engine, products: LayerProducts, options: argparse.Namespace) -> dict[str, Any]:
    """Continuous against static batching."""
    requests, batch = mixed_requests(engine, options), options.batch
    # Answers as long as asked for: what the model says behind its end does not matter for the work.
    decode = DecodeSpec(stop_tokens=())

    def answered(group: Sequence[Request]) -> Ids:
        return [answer.ids for answer in engine.generate(group, decode, batch_size=batch)]

    def static() -> Ids:
        groups = [requests[start : start + batch] for start in range(0, len(requests), batch)]
        return [ids for group in groups for ids in answered(group)]

    return contest({"static": static, "continuous": lambda: answered(requests)}, products, options)


def sweep(engine: unmask.Engine, products: LayerProducts, options: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """The accuracy runs of a recipe, in batches against one request at a time."""
    recipe = read_recipe(options.recipe)
    chosen = options.configurations or [point.name for point in recipe.expanded()]
    unknown = sorted(set(chosen) - {point.name for point in recipe.expanded()})
    if unknown:
        raise SystemExit(f"The recipe has no configuration {unknown[0]}.")
    on, _ = clock_of(options.threads)
    cells = []
    for name in chosen:
        for task in recipe.tasks:
            runs = cell_runs(engine, recipe, name, task, options)
            cells.append({"configuration": name, "task": task.name, **time_cell(runs, on, options.repeats)})
    totals = {
        way: [sum(taken) for taken in zip(*(cell["seconds"][way] for cell in cells), strict=True)]
        for way in ("one", "batch")
    }
    for cell in cells:
        cell["seconds"] = {way: median(taken) for way, taken in cell["seconds"].items()}
    return {
        "cells": cells,
        "seconds": {way: median(taken) for way, taken in totals.items()},
        "speedup": asdict(Ratio.of(totals["one"], totals["batch"])),
    }


def cell_runs(
    engine: unmask.Engine, recipe: Recipe, name: str, task: TaskSpec, options: argparse.Namespace
) -> dict[str, Callable[[], list[Any]]]:
    """Both ways of one configuration on one task; they give ids, or log likelihoods."""
    point = next(point for point in recipe.expanded() if point.name == name)
    decode, policy = recipe.decode_of(point), recipe.policy_of(point)
    count = min(filter(None, (task.limit, options.rows)), default=None)
    rows = task_rows(task.name.removeprefix("unmask_"), count)
    if "options" in rows[0]:
        asked = [one for row in rows for one in choices(engine, row)]

        def scored(part: Sequence[ScoreRequest], batch: int) -> list[float]:
            found = engine.score(part, task.estimator, task.order, decode, policy, batch)
            return [score.logprob for score in found.scores]

        return {
            "one": lambda: [score for one in asked for score in scored([one], 1)],
            "batch": lambda: scored(asked, options.batch),
        }
    prompts = sorted((engine.tokenizer.encode(prompt_of(row)) for row in rows), key=len, reverse=True)
    settings = msgspec.structs.replace(decode, stop_strings=STOP)

    def generated(batch: int) -> Ids:
        return [answer.ids for answer in engine.generate(prompts, settings, policy, batch)]

    return {"one": lambda: generated(1), "batch": lambda: generated(options.batch)}


def choices(engine: unmask.Engine, row: Mapping[str, Any]) -> list[ScoreRequest]:
    """A question's options behind its prompt, cut between tokens as lm-eval does."""
    prefix = engine.tokenizer.encode(row["prompt"])
    wholes = [engine.tokenizer.encode(f"{row['prompt']} {option}") for option in row["options"]]
    return [ScoreRequest(prefix, whole[len(prefix) :]) for whole in wholes]


def time_cell(runs: Mapping[str, Callable[[], list[Any]]], on: str, repeats: int) -> dict[str, Any]:
    """Count and compare both ways, then clock them in turns."""
    found, counted = {}, {}
    for way, run in runs.items():
        with watched() as forwards:
            found[way] = run()
        counted[way] = {"forwards": len(forwards), "rows": sum(forward.rows for forward in forwards)}
    if isinstance(found["one"][0], float):
        refuse_other_scores(found)
    else:
        refuse_difference(found)
    samples = interleave(
        {way: lambda run=run: clock(lambda: run() and None) for way, run in runs.items()}, repeats
    )
    seconds = {way: [getattr(sample, on) for sample in taken] for way, taken in samples.items()}
    return {"counted": counted, "seconds": seconds}


def refuse_other_scores(found: Mapping[str, list[float]]) -> None:
    """Stop where log likelihoods differ by more than rounding."""
    largest = max(abs(left - right) for left, right in zip(*found.values(), strict=True))
    if largest > TOLERANCE:
        raise SystemExit(f"The scores differ by {largest:.6f}, so no figure is given.")


def show(part: str, found: Mapping[str, Any]) -> None:
    ratio = Ratio(**found["speedup"])
    if part == "sweep":
        print(
            f"sweep: {found['seconds']['one']:.1f} s one by one, {found['seconds']['batch']:.1f} s in batches"
        )
        print(
            f"  {'configuration':14} {'task':20} {'forwards one':>13} {'batch':>7} {'s one':>8} {'batch':>8}"
        )
        for cell in found["cells"]:
            counted, seconds = cell["counted"], cell["seconds"]
            print(
                f"  {cell['configuration']:14} {cell['task']:20} {counted['one']['forwards']:13d} "
                f"{counted['batch']['forwards']:7d} {seconds['one']:8.2f} {seconds['batch']:8.2f}"
            )
        print(f"  speed-up: {ratio}")
        return
    print(f"{part}: {found['tokens']} new tokens")
    print(f"  {'':12} {'forwards':>9} {'rows':>8} {'seconds':>8} {'tokens/s':>9} {'products s':>11}")
    for name, one in found["contenders"].items():
        print(
            f"  {name:12} {one['forwards']:9d} {one['rows']:8d} {one['seconds']:8.2f} "
            f"{one['tokens_per_second']:9.1f} {one['product_seconds']:11.2f}"
        )
    print(f"  fewer forwards: {found['forwards_ratio']:.2f}; speed-up: {ratio}")
    print(f"  products alone: {found['products_alone']:.2f}; limit: {found['limit']:.2f}")


PARTS = {"many": many, "mixed": mixed, "sweep": sweep}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shape", choices=[EMBEDDED, *SHAPES], default=EMBEDDED)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64, help="of `many` and `mixed`")
    parser.add_argument("--short", type=int, default=8, help="new tokens of half of the mixed requests")
    parser.add_argument("--long", type=int, default=128, help="new tokens of the other half")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the mixed requests")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--configurations", nargs="+", help="of the sweep; all without it")
    parser.add_argument("--rows", type=int, help="of each task of the sweep; the recipe's limits without it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.shape != EMBEDDED and "sweep" in options.parts:
        parser.error(f"the sweep is one of the embedded model; name other parts for {options.shape}")
    engine = load(options.shape, options.cache)
    products = LayerProducts(engine.config.shape)
    found = {}
    for part in options.parts:
        found[part] = PARTS[part](engine, products, options)
        show(part, found[part])
    report = {"benchmark": "batching", "clock": clock_of(options.threads)[0]}
    report |= {
        name: value for name, value in vars(options).items() if name not in ("recipe", "parts", "cache")
    }
    print(json.dumps(report | {"found": found} | machine()))


if __name__ == "__main__":
    main()
