"""What is said beforehand of a rule's steps is what the rule does, and ledgers are read back alike."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from unmask.analysis.step_counts import StepCounts, counted_steps
from unmask.cost import ModelShape
from unmask.cost.work_sums import WorkSums
from unmask.engine.policy import Full
from unmask.engine.rules import RuleView, make_rule
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.family import DREAM, FAMILIES, LLADA, Family
from unmask.spec.rule import AnyRuleSpec
from unmask.store.result import CountedWork

RULES: list[dict[str, Any]] = [
    *({"kind": kind, "n": n} for kind in ("top_n", "sequential", "random") for n in (1, 3, 100)),
    *({"kind": kind, "steps": steps} for kind in ("top_n", "random") for steps in (1, 5, 8, 40)),
    *({"kind": "share", "steps": steps} for steps in (None, 1, 2, 5, 16, 40)),
    {"kind": "share", "steps": 6, "eps": 0.05},
]
OPEN: list[dict[str, Any]] = [{"kind": "threshold"}, {"kind": "origin"}, {"kind": "overdue", "steps": 4}]
SHAPE = ModelShape(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=16, vocabulary=32)


def done_by(rule: AnyRuleSpec, size: int, opened: bool) -> Iterator[int]:
    """What the rule really chooses, step by step."""
    left, step = size - opened, int(opened)
    while left:
        chosen = len(make_rule(rule).choose(RuleView(step, size, [0.5] * left, lambda place: place / 100)))
        left, step = left - chosen, step + 1
        if chosen:
            yield chosen


@pytest.mark.parametrize("values", RULES, ids=str)
def test_rules_that_go_by_their_number_say_what_they_do(values: dict[str, Any]) -> None:
    rule = msgspec.convert(values, AnyRuleSpec)
    for size in (1, 2, 7, 8, 32, 64):
        for opened in (False, True):
            assert rule.writes(size, opened) == tuple(done_by(rule, size, opened))


@pytest.mark.parametrize("values", OPEN, ids=str)
def test_rules_that_go_by_predictions_say_nothing(values: dict[str, Any]) -> None:
    assert msgspec.convert(values, AnyRuleSpec).writes(8) == ()


def test_a_model_without_masks_has_no_planned_steps() -> None:
    script = Script(family=FAMILIES["autoregressive"], block_size=1, sub_block_size=1, cache="none")
    assert StepCounts.planned(script, script.family.rule) is None


@pytest.mark.parametrize("family", [LLADA, DREAM], ids=lambda family: family.name)
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("guidance", [0.0, 0.5])
def test_a_ledger_tells_the_tokens_a_step_of_the_rule(family: Family, cache: Any, guidance: float) -> None:
    """Guidance counts every forward twice, and steps that open a sub-block for a cache ask no rule."""
    script = Script(
        prompt_tokens=40,
        new_tokens=64,
        block_size=None,
        sub_block_size=16,
        cache=cache,
        guidance=guidance,
        family=family,
    )
    rule = msgspec.convert({"kind": "top_n", "n": 3}, AnyRuleSpec)
    planned = StepCounts.planned(script, rule)
    assert planned is not None
    ledger = rehearse(Full(), 2, replace(script, unmasked=planned.unmasked))
    work = msgspec.convert(WorkSums.of(ledger, SHAPE).as_dict(), CountedWork)
    decode = {"cache": cache, "guidance": guidance, "sub_block_size": 16}
    tokens, block, sub = counted_steps(work, 64, decode, family)
    assert tokens / (block + sub) == pytest.approx(planned.mean)
    lanes = 2 if guidance else 1
    opened = 4 if family is DREAM and cache != "none" else 0
    assert (tokens, block + sub) == (64 - opened, sum(ledger.steps().values()) // lanes - opened)
