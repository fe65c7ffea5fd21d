"""Is the yardstick honest? One forward of reference_network.py beside transformers' own Qwen2.

Both run the same weights on the same tokens: 32 and 8 of them, behind 96 that are in the cache
(DynamicCache there, GrowingCache here), under the block-causal mask that this decoder needs, which each
call builds anew. The logits must agree; the reference should take at most 10 % longer. Needs transformers,
which Unmask itself does not: `pip install -e '.[bench]'` in an environment of its own.

    python benchmarks/honesty.py --shape 0.5b --repeats 15

The last line is one JSON document; exit code 1 if the median ratio of a case, on the CPU clock, is beyond
the limit. Only slower counts: a reference that is faster makes the engine's lead smaller, not larger.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from random_checkpoint import DEFAULT_CACHE, SHAPES, random_checkpoint
from reference_network import GrowingCache, ReferenceNetwork
from timing import Sample, clock, interleave, machine, ratios

try:
    import transformers
    from transformers import DynamicCache, Qwen2ForCausalLM
except ImportError:
    transformers = None

LIMIT = 1.10
BLOCK = 32
SHORTEST_SAMPLE = 0.1
"""Seconds; faster forwards are repeated within a sample."""


def mask(past: int, fed: int) -> Tensor:
    """True where a query sees a key: every key of its own and of earlier blocks."""
    queries = torch.arange(past, past + fed)
    return (queries[:, None] // BLOCK >= torch.arange(past + fed) // BLOCK)[None, None]


class Reference:
    """The network of this folder."""

    def __init__(self, folder: Path, prefix_BT: Tensor) -> None:
        self.network, self.past = ReferenceNetwork.load(folder), prefix_BT.shape[1]
        self.filled = GrowingCache()
        self.network(prefix_BT, torch.arange(self.past), mask(0, self.past), self.filled)

    def cache(self) -> GrowingCache:
        """A cache that holds the prefix."""
        copy = GrowingCache()
        copy.keys, copy.values = dict(self.filled.keys), dict(self.filled.values)
        return copy

    def forward(self, tokens_BT: Tensor, cache: GrowingCache) -> Tensor:
        """Feed tokens behind the prefix."""
        fed = tokens_BT.shape[1]
        positions_T = torch.arange(self.past, self.past + fed)
        return self.network(tokens_BT, positions_T, mask(self.past, fed), cache)


class Transformers:
    """The library's own model."""

    def __init__(self, folder: Path, prefix_BT: Tensor) -> None:
        self.past = prefix_BT.shape[1]
        self.network = Qwen2ForCausalLM.from_pretrained(folder, attn_implementation="sdpa").float().eval()
        filled = DynamicCache()
        self.network(prefix_BT, attention_mask=mask(0, self.past), past_key_values=filled)
        self.filled = [(layer.keys, layer.values) for layer in filled.layers]

    def cache(self) -> Any:
        """A cache that holds the prefix."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(self.filled):
            cache.update(keys, values, index)
        return cache

    def forward(self, tokens_BT: Tensor, cache: Any) -> Tensor:
        """Feed tokens behind the prefix."""
        fed = tokens_BT.shape[1]
        positions_1T = torch.arange(self.past, self.past + fed)[None]
        return self.network(
            tokens_BT, attention_mask=mask(self.past, fed), position_ids=positions_1T, past_key_values=cache
        ).logits


def timed(model: Reference | Transformers, tokens_BT: Tensor, count: int) -> Callable[[], Sample]:
    """Make a sampler of seconds a forward; filling the caches is not timed."""

    def sample() -> Sample:
        caches = [model.cache() for _ in range(count)]
        seconds = clock(lambda: [model.forward(tokens_BT, cache) for cache in caches])
        return Sample(seconds.wall / count, seconds.cpu / count)

    return sample


def compare(models: dict[str, Reference | Transformers], tokens_BT: Tensor, repeats: int) -> dict[str, Any]:
    """Check that the logits agree, then time."""
    logits = {name: model.forward(tokens_BT, model.cache()) for name, model in models.items()}
    largest = max(float(values.abs().max()) for values in logits.values())
    difference = float((logits["reference"] - logits["transformers"]).abs().max()) / largest
    if difference > 1e-3:
        raise SystemExit(f"The two networks differ: by {difference:.2g} of the largest logit.")
    warm = timed(models["transformers"], tokens_BT, 1)().wall
    count = max(1, round(SHORTEST_SAMPLE / warm))
    samples = interleave({name: timed(model, tokens_BT, count) for name, model in models.items()}, repeats)
    result: dict[str, Any] = {"rows": tokens_BT.shape[1], "logit_difference": difference}
    for name, measured in samples.items():
        result[f"{name}_ms"] = 1e3 * sorted(sample.wall for sample in measured)[repeats // 2]
    print(
        f"{result['rows']:3d} rows: reference {result['reference_ms']:.1f} ms, "
        f"transformers {result['transformers_ms']:.1f} ms a forward (medians)"
    )
    for name, ratio in ratios(samples, "reference", "transformers").items():
        print(f"    reference / transformers, {name} clock: {ratio}")
        result[f"ratio_{name}"] = asdict(ratio)
    return result


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="0.5b")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--past", type=int, default=96, help="tokens in the cache, a multiple of 32")
    options = parser.parse_args(arguments)
    if transformers is None:
        raise SystemExit(
            "honesty.py compares with transformers, which is not here: pip install transformers."
        )
    torch.set_num_threads(options.threads)
    folder = random_checkpoint(options.shape, options.cache)
    draw = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(
        0, SHAPES[options.shape]["vocab_size"], (1, options.past + BLOCK), generator=draw
    )
    prefix_BT, block_BT = tokens_BT[:, : options.past], tokens_BT[:, options.past :]
    models = {"reference": Reference(folder, prefix_BT), "transformers": Transformers(folder, prefix_BT)}
    cases = [compare(models, block_BT[:, :rows], options.repeats) for rows in (BLOCK, BLOCK // 4)]
    honest = all(case["ratio_cpu"]["median"] <= LIMIT for case in cases)
    report = {"benchmark": "honesty", "shape": options.shape, "past": options.past, "cases": cases}
    print(json.dumps(report | {"honest": honest, "transformers": transformers.__version__} | machine()))
    return 0 if honest else 1


if __name__ == "__main__":
    raise SystemExit(main())
