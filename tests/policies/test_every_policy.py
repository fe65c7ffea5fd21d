"""What holds for every registered policy, by registration."""

import json
from functools import lru_cache
from typing import Any

import pytest

from policy_cases import (
    DECODE,
    EXAMPLES,
    LAYERS,
    PROMPTS,
    SUBSETS,
    UNITS,
    Run,
    engine,
    one,
    reuse,
    run,
)
from unmask.cost import total_price
from unmask.engine.engine import Engine
from unmask.engine.step_plan import FULL, Kind, Op
from unmask.policies.registry import MAKERS, make_policy, policy_spec
from unmask.spec import PolicySpec

ACTING = [spec for examples in EXAMPLES.values() for spec in examples.acting]
DEAD = [spec for examples in EXAMPLES.values() for spec in examples.dead]


@lru_cache(maxsize=512)
def _alone(number: int, spec: str) -> Run:
    return one(PROMPTS[number], json.loads(spec))


def alone(number: int, spec: dict[str, Any] | None = None) -> Run:
    """One of the prompts decoded alone, once a session."""
    return _alone(number, json.dumps(spec))


def told(spec: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in spec.items())


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_every_registered_policy_has_examples(kind: type[PolicySpec]) -> None:
    assert kind in EXAMPLES, f"{kind.__name__} is registered: add examples to tests/policy_cases.py"
    examples = EXAMPLES[kind]
    assert examples.acting or examples.dead
    for values in (*examples.acting, *examples.dead):
        assert type(policy_spec(values)) is kind


@pytest.mark.parametrize("spec", ACTING + DEAD, ids=told)
def test_a_batch_equals_its_requests_alone(spec: dict[str, Any]) -> None:
    """Two slots for five requests of unequal length: keys and features of a slot pass to the next request."""
    together = run(PROMPTS, spec, batch_size=2)
    for number, found in enumerate(together):
        expected = alone(number, spec)
        assert found.generation.ids == expected.generation.ids
        assert found.generation.ledger == expected.generation.ledger
        assert [event.plan for event in found.events] == [event.plan for event in expected.events]


@pytest.mark.parametrize("spec", ACTING, ids=told)
def test_a_request_does_not_see_who_had_its_slot_before(spec: dict[str, Any]) -> None:
    """Confidences bit for bit: the same forwards, after another request has used slot and features."""
    after = run([PROMPTS[1], PROMPTS[3]], spec, batch_size=1)[1]
    assert seen(after) == seen(alone(3, spec))


@pytest.mark.parametrize("spec", ACTING + DEAD, ids=told)
def test_the_first_step_of_a_block_computes_all_and_nothing_else_than_denoising_is_planned(
    spec: dict[str, Any],
) -> None:
    for number in range(len(PROMPTS)):
        found = alone(number, spec)
        firsts = [event for step, event in found.denoising() if step == 0]
        assert len(firsts) >= 2
        for event in firsts:
            assert event.kind is Kind.BLOCK
            assert Op.REPLAY not in event.plan.ops
            assert event.plan.rows is None or len(event.plan.rows.always) == DECODE["block_size"]
        others = [event for event in found.events if event.kind in (Kind.PREFILL, Kind.COMMIT)]
        assert all(event.plan is FULL for event in others)


@pytest.mark.parametrize("spec", ACTING, ids=told)
def test_what_a_policy_saves_is_in_the_ledger(spec: dict[str, Any]) -> None:
    saved, differ = 0.0, False
    for number in range(len(PROMPTS)):
        found, baseline = alone(number, spec).generation, alone(number).generation
        ledger = found.ledger
        saved += ledger.reuse_fraction()
        differ |= found.ids != baseline.ids
        shape = engine().config.shape
        price, whole = (total_price(work, shape, 4) for work in (ledger, ledger.in_full()))
        assert price.flops <= whole.flops
        assert price.bytes <= whole.bytes
        assert (price.flops < whole.flops) == (ledger.reuse_fraction() > 0)
    assert saved > 0.02
    assert differ


@pytest.mark.parametrize("spec", DEAD, ids=told)
def test_a_policy_that_cannot_act_is_the_baseline(spec: dict[str, Any]) -> None:
    for number in range(len(PROMPTS)):
        found, baseline = alone(number, spec).generation, alone(number).generation
        assert found.ids == baseline.ids
        assert found.ledger == baseline.ledger
        assert found.ledger.reuse_fraction() == 0


def seen(found: Run) -> list[tuple[object, ...]]:
    return [
        (event.kind, event.plan, event.positions, event.tokens, event.confidences) for event in found.events
    ]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("layers", [*SUBSETS, [0, "2-4"]], ids=str)
def test_k_1_is_the_baseline_bit_for_bit(unit: str, layers: Any) -> None:
    policy = reuse(k=1, unit=unit, layers=layers, on=["sub", "block"])
    for number in (1, 2, 3):
        found, baseline = alone(number, policy), alone(number)
        assert seen(found) == seen(baseline)
        assert found.generation.ids == baseline.generation.ids
        assert found.generation.ledger == baseline.generation.ledger


def test_k_1_makes_the_same_forwards() -> None:
    """The rows and the plan of every call, not only what came out of it."""
    calls: dict[str, list[object]] = {}

    class Recording(Engine):
        def workspace(self, slots: int, length: int, block_size: int) -> Any:
            workspace = super().workspace(slots, length, block_size)
            forward = workspace.forward

            def record(tokens: Any, segments: Any, *rest: Any) -> Any:
                calls[name].append((tuple(tokens), tuple(segments), rest))
                return forward(tokens, segments, *rest)

            workspace.forward = record  # type: ignore[method-assign]
            return workspace

    recording = Recording(engine().transformer, engine().mask_token, make_policy=make_policy)
    for name, policy in (("baseline", None), ("k=1", reuse(k=1, unit="mlp", on=["sub", "block"]))):
        calls[name] = []
        run(PROMPTS[:3], policy, 2, on=recording)
    assert calls["k=1"] == calls["baseline"] != []


def test_a_policy_that_writes_out_a_full_plan_is_the_baseline_too() -> None:
    class Written:
        def plan(self, view: Any) -> Any:
            return type(FULL)((Op.COMPUTE,) * LAYERS) if view.step % 2 else type(FULL)()

    found, baseline = one(PROMPTS[1], Written()), one(PROMPTS[1])
    assert found.generation.ids == baseline.generation.ids
    assert found.generation.ledger == baseline.generation.ledger
