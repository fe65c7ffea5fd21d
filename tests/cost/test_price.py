"""A ledger's price is what torch's own counter sees, and a rehearsal's ledger is the engine's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from typing import Any

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from policy_cases import (
    BLOCK,
    BOTH,
    DECODE,
    EXAMPLES,
    LAYERS,
    SUB_BLOCK,
    combine,
    engine,
    one,
    prompt,
    reuse,
    run,
    trim,
)
from unmask.cost import Ledger, ModelShape, Work, price_of, total_price
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.engine.sampling import Predictions
from unmask.engine.sequence import SequenceState
from unmask.model import geometry
from unmask.model.projection import Projection
from unmask.model.transformer import Layer, Transformer
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse

POLICIES = [None, *(spec for examples in EXAMPLES.values() for spec in examples.acting)]
PROMPT = prompt(2 * BLOCK + 5)
SHORT = {"max_new_tokens": 17}


@lru_cache
def plain() -> Engine:
    """The same weights behind stock linear layers."""

    def stock(projection: Projection) -> Projection:
        return Projection(projection.weight_OI.contiguous().t(), projection.bias_O, "out_in")

    def layer(fast: Layer) -> Layer:
        names = ("qkv", "attention_out", "gate_up", "down")
        return replace(fast, **{name: stock(getattr(fast, name)) for name in names})

    fast = engine().transformer
    layers = tuple(map(layer, fast.layers))
    whole = Transformer(fast.config, fast.embedding_VD, layers, fast.norm_D, stock(fast.head))
    return Engine(whole, engine().mask_token, make_policy=make_policy)


def counted(policy: Any) -> tuple[Counter[str], Ledger]:
    """Operations of the forwards of each kind as torch counts them, and the ledger."""
    flops: Counter[str] = Counter()
    stream = plain().stream([PROMPT], DECODE | SHORT, policy, batch_size=1)
    with sdpa_kernel(SDPBackend.MATH):
        while True:
            with FlopCounterMode(display=False) as counter:
                event = next(stream)
            if not isinstance(event, StepEvent):
                return flops, event.generation.ledger
            flops[event.kind.value] += counter.get_total_flops()


def priced(ledger: Ledger, shape: ModelShape) -> Counter[str]:
    flops: Counter[str] = Counter()
    for work, count in ledger.entries.items():
        flops[work.kind] += count * price_of(work, shape, 4).flops
    return flops


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_operations_are_those_that_torch_counts(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(geometry.SHARED_CALL_LIMIT, "cpu", 0)
    flops, ledger = counted(policy)
    shape = plain().config.shape
    assert flops == priced(ledger, shape)
    assert set(flops) == {"prefill", "block", "sub", "commit"}
    assert total_price(ledger, shape, 4).flops == flops.total()
    # The weights' order, fused attention and padded calls change nothing in what is counted.
    monkeypatch.undo()
    fast = run([PROMPT, prompt(7), prompt(BLOCK)], policy, batch_size=3, **SHORT)[0].generation
    assert fast.ledger == ledger


def test_the_counter_sees_what_padding_adds_which_is_why_it_is_switched_off_above() -> None:
    flops, ledger = counted(None)
    assert flops["prefill"] > priced(ledger, plain().config.shape)["prefill"]
    assert flops["sub"] == priced(ledger, plain().config.shape)["sub"]


def test_a_price_by_hand() -> None:
    shape = ModelShape(layers=2, hidden=8, ffn=10, heads=4, kv_heads=2, head_dim=2, vocabulary=100)
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8
    mlp = 3 * 8 * 10
    assert (shape.attention_weights, shape.mlp_weights, shape.head_weights) == (attention, mlp, 800)
    work = Work("sub", rows=4, pairs=4 * 32, reads=3)
    layer = 2 * 4 * (attention + mlp) + 2 * 2 * 4 * (4 * 32 * 2)
    assert price_of(work, shape, 2).flops == 2 * layer + 2 * 3 * 800
    read = attention + mlp + (32 + 4) * 8
    assert price_of(work, shape, 2).bytes == 2 * (2 * read + 800)
    skipped = Work("sub", 4, 4 * 32, 3, attention=(4, 0), mlp=(4, 2))
    flops = layer + 2 * 2 * mlp + 2 * 3 * 800
    assert price_of(skipped, shape, 2).flops == flops
    assert price_of(skipped, shape, 2).bytes == 2 * (read + mlp + 800)
    replayed = Work("sub", 4, 4 * 32, 3, attention=(0, 0), mlp=(0, 0))
    assert (price_of(replayed, shape, 2).flops, price_of(replayed, shape, 2).bytes) == (4800, 1600)


class LeftToRight:
    """Unmasks the leftmost positions, so many a step, as a rehearsal assumes."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = cycle(counts)

    def denoised(
        self, _: SequenceState, columns: Sequence[int], found: Predictions
    ) -> list[tuple[int, int, float]]:
        chosen = list(zip(columns, found.tokens, found.confidences, strict=True))
        return chosen[: next(self.counts)]

    def committed(self, _: SequenceState, column: int, found: Predictions) -> list[tuple[int, int, float]]:
        return [(column, found.tokens[0], found.confidences[0])]


REHEARSED = [
    None,
    *(reuse(unit=unit, k=3, on=BOTH) for unit in ("output", "residual", "attention", "mlp")),
    reuse(k=2, warmup=2),
    trim(),
    trim(every=2),
    trim(keep=0.3),
    trim(keep=0.7, probe_layer=1, every=3),
    combine(trim(), reuse(unit="output", on=BOTH)),
    combine(trim(keep=0.3), reuse(layers="last", on=BOTH)),
]


@pytest.mark.parametrize("cache", ["dual", "none"])
@pytest.mark.parametrize("policy", REHEARSED, ids=str)
def test_a_rehearsal_counts_what_the_engine_counts(policy: Any, cache: str) -> None:
    for length, counts in ((5, (1,)), (BLOCK, (2, 1, 1)), (3 * BLOCK + 2, (1, 3, 1, 2))):
        found = one(prompt(length), policy, rule=LeftToRight(counts), cache=cache)
        steps = tuple(len(event.positions) for _, event in found.denoising())
        script = Script(length, int(DECODE["max_new_tokens"]), BLOCK, SUB_BLOCK, cache, unmasked=steps)
        assert rehearse(make_policy(policy, LAYERS), LAYERS, script) == found.generation.ledger
