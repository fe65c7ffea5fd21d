"""The seed's layer reuse, vector by vector: its tokens, its steps, and what its layer calls came to."""

import json
from functools import lru_cache
from typing import Any

import pytest

from checkpoints import GOLDEN, golden_settings, load_recipe, read_golden
from policy_cases import Run
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.policies.registry import make_policy
from unmask.policies.subsets import named_subset

VECTORS = sorted(file.stem for file in GOLDEN.glob("reuse_*.json"))


@lru_cache
def engine_of(recipe: str) -> Engine:
    loaded = load_recipe(json.loads(recipe)).engine
    return Engine(loaded.transformer, loaded.mask_token, make_policy=make_policy)


def decode(vector: dict[str, Any]) -> Run:
    engine = engine_of(json.dumps(vector["checkpoint"]))
    settings = golden_settings(vector) | {"max_new_tokens": vector["decode"]["max_new_tokens"][0]}
    found = Run()
    for event in engine.stream(vector["prompts"], settings, vector["policy"]):
        if isinstance(event, StepEvent):
            found.events.append(event)
        else:
            found.answer = event.generation
    return found


def test_all_nine_vectors_are_here() -> None:
    assert len(VECTORS) == 9
    assert all(len(read_golden(name)["prompts"]) == 1 for name in VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_tokens_steps_and_layer_calls(name: str) -> None:
    vector = read_golden(name)
    found = decode(vector)
    ledger = found.generation.ledger

    assert found.generation.ids == vector["expect"][0]["ids"], vector["margin"]
    assert ledger.steps() == vector["forwards"]

    replayed = sum(event.plan.replays_everything for event in found.events)
    forwards = sum(vector["forwards"].values())
    policy, calls = vector["policy"], vector["layer_calls"]
    subset = named_subset(policy["layers"], policy["size"], ledger.layers)
    assert bool(replayed) == (policy["k"] > 1)
    assert calls["replayed"] == [replayed if layer in subset else 0 for layer in range(ledger.layers)]
    assert calls["computed"] == [forwards - count for count in calls["replayed"]]
    # What the reference replays in its subset alone costs here no layer at all.
    assert ledger.layer_calls() == [forwards - replayed] * ledger.layers


def test_a_replayed_step_has_no_rows_in_any_layer_and_writes_one_token() -> None:
    found = decode(read_golden("reuse_output_k3_middle"))
    empty = (0,) * found.generation.ledger.layers
    works = found.generation.ledger.entries.items()
    without_layers = sum(count for work, count in works if work.attention == empty and work.mlp == empty)
    replays = [event for event in found.events if event.plan.replays_everything]
    assert without_layers == len(replays) > 0
    assert {len(event.positions) for event in replays} == {1}
