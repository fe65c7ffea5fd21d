"""Policies on every family that denoises: what holds for Fast-dLLM v2 holds for the others by the same tests."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import pytest
import torch

from checkpoints import MASK, OF_FAMILY, engine_of, small_model
from policy_cases import BOTH, EXAMPLES, LAYERS, PROMPTS, UNITS, Run, adaptive, combine, one, reuse, run, trim
from unmask.engine.engine import Engine
from unmask.engine.policy import StepView
from unmask.engine.score import ScoreRequest
from unmask.engine.step_plan import Op, RowSelection, StepPlan, Unit
from unmask.model.transformer import Transformer
from unmask.policies.registry import make_policy

SETTINGS: dict[str, dict[str, Any]] = {
    "fast_dllm_v2": {},
    "sdar": {"sub_block_size": None},
    "sdar in sub-blocks": {"sub_block_size": 4},
    "llada": {"sub_block_size": 8, "cache": "none", "block_size": None},
    "llada with a prefix cache": {"sub_block_size": 8, "cache": "prefix", "block_size": None},
    "llada with guidance": {
        "sub_block_size": 8,
        "cache": "dual",
        "block_size": None,
        "refresh_every": 3,
        "guidance": 0.7,
    },
    "dream": {"sub_block_size": None, "cache": "none", "block_size": None},
    "dream with a prefix cache": {"sub_block_size": 8, "cache": "prefix", "block_size": None},
    "dream with a dual cache": {"sub_block_size": 8, "cache": "dual", "block_size": None},
}
"""Decode settings over those of policy_cases; None leaves the family's."""
ACTING: list[dict[str, Any]] = [
    *(reuse(unit=unit, k=2, on=BOTH) for unit in UNITS),
    reuse(k=3, layers="last", on=["block"]),
    reuse(k=2, on=[*BOTH, "tail"]),
    trim(inside=True),
    trim(inside=True, keep=0.4, probe_layer=1),
    trim(inside=True, keep=0.2, every=3),
    adaptive(max_drift=10),
    adaptive(unit="mlp", max_drift=0.6, budget=1),
    combine(trim(inside=True), reuse(on=BOTH)),
    combine(trim(inside=True), adaptive(max_drift=10)),
]
EVERY = [*ACTING, *(spec for examples in EXAMPLES.values() for spec in (*examples.acting, *examples.dead))]


def told(spec: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in spec.items())


@lru_cache
def engine(family: str) -> Engine:
    changes = OF_FAMILY[family.partition(" ")[0]]
    small = small_model(0, **changes | {"num_hidden_layers": LAYERS, "n_layers": LAYERS}).engine
    return Engine(small.transformer, MASK, make_policy=make_policy)


def decoded(family: str, policy: Any = None, batch_size: int = 1, on: Engine | None = None) -> list[Run]:
    return run(PROMPTS, policy, batch_size, on or engine(family), **SETTINGS[family])


@lru_cache
def baseline(family: str) -> list[Run]:
    return decoded(family)


def seen(found: Run) -> list[tuple[object, ...]]:
    return [(event.kind, event.positions, event.tokens, event.confidences) for event in found.events]


@dataclass
class AlwaysRefreshing:
    """Computes and remembers everything at every step, and puts nothing back."""

    unit: Unit
    rows: bool = False

    def plan(self, view: StepView) -> StepPlan:
        rows = RowSelection(tuple(view.fed)) if self.rows else None
        return StepPlan((Op.REFRESH,) * view.layers, self.unit, merge=self.unit is Unit.OUTPUT, rows=rows)


@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("unit", Unit)
def test_a_plan_that_refreshes_at_every_step_is_the_baseline_bit_for_bit(family: str, unit: Unit) -> None:
    for rows in (False, True):
        found = decoded(family, AlwaysRefreshing(unit, rows))
        for refreshed, plain in zip(found, baseline(family), strict=True):
            assert seen(refreshed) == seen(plain)
            assert refreshed.generation.ids == plain.generation.ids
            assert refreshed.generation.ledger.steps() == plain.generation.ledger.steps()
            assert refreshed.generation.ledger.reuse_fraction() == 0


class Counting(Transformer):
    """Counts the calls of every layer's branches."""

    def __init__(self, other: Transformer) -> None:
        self.__dict__.update(other.__dict__)
        self.calls: Counter[tuple[str, int]] = Counter()

    def attention(self, index: int, *rest: Any) -> torch.Tensor:
        self.calls["attention", index] += 1
        return super().attention(index, *rest)

    def mlp(self, index: int, *rest: Any) -> torch.Tensor:
        self.calls["mlp", index] += 1
        return super().mlp(index, *rest)


@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("spec", EVERY, ids=told)
def test_a_batch_equals_its_requests_alone(family: str, spec: dict[str, Any]) -> None:
    alone, together = decoded(family, spec), decoded(family, spec, batch_size=3)
    for expected, found in zip(alone, together, strict=True):
        assert found.generation.ids == expected.generation.ids
        assert found.generation.ledger == expected.generation.ledger
        assert [event.plan for event in found.events] == [event.plan for event in expected.events]


@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("spec", ACTING, ids=told)
def test_what_a_ledger_counts_is_what_was_called(family: str, spec: dict[str, Any]) -> None:
    for prompt in PROMPTS[:3]:
        transformer = Counting(engine(family).transformer)
        counting = Engine(transformer, MASK, make_policy=make_policy)
        ledger = one(prompt, spec, on=counting, **SETTINGS[family]).generation.ledger
        lanes = 2 if "guidance" in SETTINGS[family] else 1  # both in one call
        calls = [
            lanes * max(transformer.calls[branch, layer] for branch in ("attention", "mlp"))
            for layer in range(LAYERS)
        ]
        assert ledger.layer_calls() == calls


@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("spec", ACTING, ids=told)
def test_every_policy_acts(family: str, spec: dict[str, Any]) -> None:
    saved = [found.generation.ledger.reuse_fraction() for found in decoded(family, spec)]
    assert sum(saved) / len(saved) > 0.02


@pytest.mark.parametrize("family", SETTINGS)
def test_tail_steps_are_reused_where_there_are_any(family: str) -> None:
    found = decoded(family, reuse(k=2, on=["tail"]))
    kept = [each.generation.ledger.reuse_fraction() for each in found]
    if SETTINGS[family].get("cache") == "prefix":
        assert min(kept) > 0
    else:
        assert max(kept) == 0
        assert [seen(each) for each in found] == [seen(plain) for plain in baseline(family)]


def test_trim_can_leave_out_nothing_in_a_block_that_competes_whole_unless_it_may_look_inside() -> None:
    for found, plain in zip(decoded("sdar", trim()), baseline("sdar"), strict=True):
        assert found.generation.ids == plain.generation.ids
        assert found.generation.ledger.reuse_fraction() == 0
    assert any(found.generation.ledger.reuse_fraction() > 0.1 for found in decoded("sdar", trim(inside=True)))


TOYS: dict[str, dict[str, Any]] = {
    "fast_dllm_v2": {"block_size": 8, "sub_block_size": 4},
    "sdar": {"block_size": 8},
    "llada": {"sub_block_size": 2, "cache": "none"},
    "llada with a prefix cache": {"sub_block_size": 2, "cache": "prefix"},
    "llada with a dual cache": {"sub_block_size": 2, "cache": "dual"},
    "llada with guidance": {"sub_block_size": 2, "cache": "dual", "refresh_every": 2, "guidance": 0.5},
    "dream": {"cache": "none"},
    "dream with guidance": {"cache": "none", "guidance": 0.5},
    "dream with a prefix cache": {"sub_block_size": 3, "cache": "prefix"},
    "dream with a dual cache": {"sub_block_size": 3, "cache": "dual"},
}


TOY_POLICIES = [
    None,
    reuse(on=[*BOTH, "tail"]),
    reuse(unit="output", on=[*BOTH, "tail"]),
    trim(inside=True),
    adaptive(max_drift=10),
    combine(trim(inside=True), reuse(k=3, on=[*BOTH, "tail"])),
]


@pytest.mark.parametrize("family", TOYS)
@pytest.mark.parametrize("spec", TOY_POLICIES, ids=str)
def test_scores_by_chain_sum_to_one_over_all_targets(family: str, spec: dict[str, Any] | None) -> None:
    changes = OF_FAMILY[family.partition(" ")[0]] | {"embedding_size": 5}
    small = small_model(0, vocab_size=5, mask_token_id=4, eos_token_id=2, **changes)
    toy = engine_of(Engine, small.engine)
    policy = None if spec is None else make_policy(spec, 2)
    for length in (3, 4, 5):
        prefix = [index % 4 for index in range(length)]
        requests = [ScoreRequest(prefix, target) for target in product(range(4), repeat=3)]
        found = toy.score(requests, "chain", "confidence", TOYS[family], policy, batch_size=64)
        assert math.isclose(sum(math.exp(score.logprob) for score in found.scores), 1, rel_tol=1e-4)
