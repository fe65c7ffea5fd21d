"""How many answers of whole-canvas models change with the company that they are decoded in.

Prompts of unequal length are decoded alone and in batches: by Unmask's engine, and by the sampler that is published for
LLaDA (canvas_reference.py, which gives the published vectors), where shorter prompts of a batch are padded on the left,
pads are seen and shift positions, and rows go on until all are done. Weights are random (the shape `tiny`), so the
counts show that answers depend on company, not how much worse they become. Dream's published samplers are
not compared: with a cache they take one prompt at a time.

    python benchmarks/padding.py                             # a minute where nothing else runs
    python benchmarks/padding.py --write docs/families.md    # the table between its markers there

The last line is one JSON document; exit code 1 if an answer of the engine changes.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

import unmask
from canvas import CACHES, FAMILIES
from canvas_reference import Settings, decode_llada
from random_checkpoint import DEFAULT_CACHE, random_checkpoint
from reference_network import ReferenceNetwork
from timing import machine
from unmask.engine.prompt import Request

Ids = list[list[int]]
BLOCK, NEW_TOKENS = 16, 32
RULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two positions a step": ({"kind": "top_n", "n": 2}, {"steps": NEW_TOKENS // 2}),
    "threshold 0.9": ({"kind": "threshold", "threshold": 0.9}, {"threshold": 0.9}),
}
"""Each in our words and in LLaDA's."""
MARKS = "<!-- padding:begin -->", "<!-- padding:end -->"


def changed(decode: Callable[[Ids], Ids], prompts: Ids, batch: int) -> int:
    """Answers in batches that are not those of their prompts alone."""
    alone = [decode([prompt])[0] for prompt in prompts]
    together = [
        answer for first in range(0, len(prompts), batch) for answer in decode(prompts[first : first + batch])
    ]
    return sum(one != other for one, other in zip(alone, together, strict=True))


def by_unmask(engine: unmask.Engine, cache: str, rule: dict[str, Any]) -> Callable[[Ids], Ids]:
    """Unmask's engine."""
    decode = {"sub_block_size": BLOCK, "cache": cache, "rule": rule, "stop_tokens": ()}

    def run(prompts: Ids) -> Ids:
        requests = [Request(prompt, NEW_TOKENS) for prompt in prompts]
        return [answer.ids for answer in engine.generate(requests, decode, batch_size=len(prompts))]

    return run


def as_published(network: ReferenceNetwork, cache: str, settings: dict[str, Any]) -> Callable[[Ids], Ids]:
    """LLaDA's loop."""
    told = Settings(new_tokens=NEW_TOKENS, block_length=BLOCK, cache=cache, **settings)
    return lambda prompts: decode_llada(network, prompts, told)[0]


def counts(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for every family, cache and rule."""
    draw = torch.Generator().manual_seed(options.seed)
    lengths: list[int] = torch.randint(4, 65, (options.prompts,), generator=draw).tolist()
    prompts: Ids = [torch.randint(1, 500, (length,), generator=draw).tolist() for length in lengths]
    rows = []
    for family in FAMILIES:
        folder = random_checkpoint(f"{family}-tiny", options.cache_folder)
        engine = unmask.load(folder, device="cpu", dtype="float32")
        network = ReferenceNetwork.load(folder)
        for cache, (name, (rule, settings)) in product(CACHES, RULES.items()):
            published = as_published(network, cache, settings) if family == "llada" else None
            rows.append(
                {
                    "family": family,
                    "cache": cache,
                    "rule": name,
                    "answers": len(prompts),
                    "unmask": changed(by_unmask(engine, cache, rule), prompts, options.batch),
                    "published": changed(published, prompts, options.batch) if published else None,
                }
            )
    return rows


def table(rows: Sequence[dict[str, Any]], batch: int) -> str:
    """Markdown."""
    total = rows[0]["answers"]
    lines = [
        f"| family | cache | rule | of {total} answers in batches of {batch}, those that changed: published | Unmask |",
        "|---|---|---|---:|---:|",
    ]
    for row in rows:
        published = "-" if row["published"] is None else row["published"]
        lines.append(f"| {row['family']} | {row['cache']} | {row['rule']} | {published} | {row['unmask']} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="a page with the markers of the table")
    parser.add_argument("--cache-folder", type=Path, default=DEFAULT_CACHE, help="where checkpoints are kept")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = counts(options)
    text = table(rows, options.batch)
    print(text)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        (before, rest), (_, after) = page.split(MARKS[0], 1), page.split(MARKS[1], 1)
        assert MARKS[1] in rest, "the table's end stands behind its beginning"
        options.write.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")
    print(json.dumps({"benchmark": "padding", "rows": rows, "seed": options.seed} | machine()))
    return 1 if any(row["unmask"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
