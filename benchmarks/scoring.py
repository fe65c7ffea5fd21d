"""MMLU-style scoring: Unmask's scorer beside one full forward for every choice.

One subject through lm-eval's own task definition, on the embedded model. The plain way feeds prefix and masked
answer as whole blocks, without a cache, once for each choice (`each`), or the four choices of a question as
one batch (`together`); its network is that of reference_network.py. Unmask's choices share the prefill and
every forward they can. Counted are the rows pushed through the model; the times of all three are taken in
turns, in one process. No time is given unless the scores of both agree.

    python benchmarks/scoring.py --data path/to/data --subject anatomy --repeats 6

Without --data the questions are invented. The last line is one JSON document; exit code 1 if more than 0.4
of the rows of the plain way are pushed through.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import unmask
from counting import watched
from mmlu_questions import questions, write_invented
from reference_network import GrowingCache, ReferenceNetwork
from timing import clock, interleave, machine, ratios
from unmask.engine.score import ScoreRequest, Scores

LIMIT = 0.4
"""Largest share of the plain way's rows."""
TOLERANCE = 1e-3
"""Largest difference of two log likelihoods; both are fp32 sums in different orders."""


class PlainScorer:
    """A forward over prefix and masked answer for every choice; the logit of a position is read before it."""

    def __init__(self, engine: unmask.Engine, folder: Path) -> None:
        self.network = ReferenceNetwork.load(folder).float()
        self.mask_token = engine.mask_token
        self.block = engine.config.block_size or 1
        self.rows = 0

    @torch.inference_mode()
    def score(self, requests: Sequence[ScoreRequest], together: bool = False) -> list[float]:
        """Log likelihoods in the order of the requests; `rows` counts what was fed."""
        self.rows = 0
        found: list[float] = []
        for batch in self._batches(requests, together):
            canvas = [
                [*one.prefix, *[self.mask_token] * (self.length(one) - len(one.prefix))] for one in batch
            ]
            logits_BTV = self._forward(torch.tensor(canvas))
            found += [self._read(logits_TV, one) for logits_TV, one in zip(logits_BTV, batch, strict=True)]
        return found

    def _forward(self, tokens_BT: Tensor) -> Tensor:
        self.rows += tokens_BT.numel()
        positions_T = torch.arange(tokens_BT.shape[1])
        blocks_T = positions_T // self.block
        seen_11TT = (blocks_T[:, None] >= blocks_T)[None, None]
        return self.network(tokens_BT, positions_T, seen_11TT, GrowingCache())

    def _read(self, logits_TV: Tensor, request: ScoreRequest) -> float:
        first = len(request.prefix) - 1
        read_LV = logits_TV[first : first + len(request.target)]
        read_LV[:, self.mask_token] = -torch.inf
        target_L1 = torch.tensor(request.target)[:, None]
        return float(read_LV.log_softmax(-1).gather(1, target_L1).sum())

    def length(self, request: ScoreRequest) -> int:
        """Tokens of a choice's canvas: whole blocks up to the end of its answer."""
        return -(-(len(request.prefix) + len(request.target)) // self.block) * self.block

    def _batches(self, requests: Sequence[ScoreRequest], together: bool) -> Iterator[list[ScoreRequest]]:
        batch: list[ScoreRequest] = []
        for one in requests:
            fits = batch and one.prefix == batch[0].prefix and self.length(one) == self.length(batch[0])
            if batch and not (together and fits):
                yield batch
                batch = []
            batch.append(one)
        yield batch


def rows_of(scores: Scores) -> dict[str, int]:
    """Rows that Unmask pushed through, by kind of forward."""
    total: dict[str, int] = {}
    for ledger in scores.ledgers:
        for kind, rows in ledger.rows().items():
            total[kind] = total.get(kind, 0) + rows
    return total


def refuse_difference(
    engine: unmask.Engine, plain: PlainScorer, requests: Sequence[ScoreRequest], batch_size: int
) -> float:
    """Compare what both score alike: answers that one masked block holds. Returns the largest difference."""
    block = plain.block
    alike = [
        one
        for one in requests
        if len(one.target) == 1 or 0 < len(one.prefix) % block <= block - len(one.target)
    ]
    ours = engine.score(alike, "onepass", batch_size=batch_size).scores
    theirs = plain.score(alike)
    largest = max(abs(mine.logprob - other) for mine, other in zip(ours, theirs, strict=True))
    if largest > TOLERANCE:
        raise SystemExit(f"The scores differ by {largest:.4f}, so no time is given: one of the two is wrong.")
    return largest


def measure(
    engine: unmask.Engine, folder: Path, requests: list[ScoreRequest], options: Any
) -> dict[str, Any]:
    """Count, compare and time; counting and comparing warm all three up."""
    plain = PlainScorer(engine, folder)
    largest = refuse_difference(engine, plain, requests, options.batch_size)

    def ours() -> Scores:
        return engine.score(requests, options.estimator, batch_size=options.batch_size)

    with watched() as forwards:
        rows = rows_of(ours())
    contenders = {
        "unmask": lambda: clock(lambda: ours() and None),
        "each": lambda: clock(lambda: plain.score(requests) and None),
        "together": lambda: clock(lambda: plain.score(requests, together=True) and None),
    }
    plain.score(requests[:4], together=True)
    samples = interleave(contenders, options.repeats)
    pushed = {"unmask": sum(rows.values()), "each": plain.rows, "together": plain.rows}
    return {
        "requests": len(requests),
        "tokens": sum(len(one.target) for one in requests),
        "rows_by_kind": rows,
        "forwards": len(forwards),
        "row_ratio": pushed["unmask"] / plain.rows,
        "largest_difference": largest,
        "contenders": {
            name: {
                "rows": pushed[name],
                "seconds": median(sample.wall for sample in taken),
                "cpu_seconds": median(sample.cpu for sample in taken),
                "requests_per_second": len(requests) / median(sample.wall for sample in taken),
            }
            for name, taken in samples.items()
        },
        "time_ratio": {
            name: {on: asdict(ratio) for on, ratio in ratios(samples, "unmask", name).items()}
            for name in ("each", "together")
        },
    }


def show(found: dict[str, Any], what: str) -> None:
    print(
        f"{what}: {found['requests']} choices, {found['tokens']} scored tokens, {found['forwards']} forwards of unmask"
    )
    print(f"{'':10} {'rows':>9} {'of each':>8} {'seconds':>8} {'choices/s':>10}  time of unmask / this")
    for name, one in found["contenders"].items():
        ratio = found["time_ratio"].get(name, {}).get("wall")
        told = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else ""
        share = one["rows"] / found["contenders"]["each"]["rows"]
        print(
            f"{name:10} {one['rows']:9d} {share:8.3f} {one['seconds']:8.2f} {one['requests_per_second']:10.1f}  {told}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of local data; questions are invented without it")
    parser.add_argument("--subject", default="anatomy")
    parser.add_argument("--limit", type=int, help="questions; all without it")
    parser.add_argument("--estimator", choices=["chain", "onepass", "canvas", "first_token"], default="chain")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=6, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    engine = unmask.load("embedded", device="cpu", dtype="float32")
    assert engine.folder
    with tempfile.TemporaryDirectory(prefix="unmask-questions-") as name:
        data = options.data or write_invented(Path(name), options.subject)
        requests = questions(engine, options.subject, data, options.limit)
    found = measure(engine, engine.folder, requests, options)
    what = f"mmlu_{options.subject}" + ("" if options.data else " (invented questions)")
    show(found, what)
    settings = {
        "task": what,
        "estimator": options.estimator,
        "batch_size": options.batch_size,
        "repeats": options.repeats,
    }
    print(json.dumps({"benchmark": "scoring", **settings, "machine": machine(), **found}))
    if found["row_ratio"] > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
