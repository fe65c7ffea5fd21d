"""The published decoder's tokens and steps, vector by vector."""

import hashlib
from typing import Any

import pytest

from checkpoints import GOLDEN, load_recipe, read_golden
from traces import first_difference
from unmask.engine.engine import Engine
from unmask.engine.events import Generation
from unmask.engine.prompt import Request
from unmask.spec import DecodeSpec
from unmask.spec.family import FAST_DLLM_V2


def needs_no_policy(name: str) -> bool:
    policy = read_golden(name).get("policy")
    return not name.startswith("loglikelihood") and (policy is None or policy["k"] == 1)


VECTORS = sorted(file.stem for file in GOLDEN.glob("*.json") if needs_no_policy(file.stem))
CONTENT = "a2b525a2571b2920fd9aca7a2a766215f83450c953108418260776e7339a20de"


def decode(engine: Engine, vector: dict[str, Any], batch_size: int) -> list[Generation]:
    settings = vector["decode"]
    limits = settings["max_new_tokens"]
    fields = {name: value for name, value in settings.items() if name != "max_new_tokens"}
    requests = [Request(ids, limit) for ids, limit in zip(vector["prompts"], limits, strict=True)]
    return engine.generate(requests, fields, batch_size=batch_size)


def compare(found: Generation, expected: dict[str, Any], vector: dict[str, Any], row: int) -> None:
    if found.ids != expected["ids"]:
        place = first_difference(expected["ids"], found.ids)
        pytest.fail(
            f"{vector['name']} row {row}: new token {place} of {len(expected['ids'])} differs: expected "
            f"{expected['ids'][place : place + 4]}..., found {found.ids[place : place + 4]}...; "
            f"margin of the vector: {vector['margin']}"
        )
    assert found.finish_reason == expected["finish"]


@pytest.mark.parametrize("name", VECTORS)
def test_tokens_and_steps_are_the_published_ones(name: str) -> None:
    vector = read_golden(name)
    engine = load_recipe(vector["checkpoint"]).engine

    answers = decode(engine, vector, batch_size=len(vector["prompts"]))

    for row, (found, expected) in enumerate(zip(answers, vector["expect"], strict=True)):
        compare(found, expected, vector, row)
    if vector["forwards"] is not None:
        steps = {"prefill": 0, "block": 0, "sub": 0, "commit": 0} | vector["forwards"]
        assert answers[0].ledger.steps() == steps


def test_rows_of_unequal_length_enter_as_others_leave() -> None:
    vector = read_golden("batch1_nocache")
    engine = load_recipe(vector["checkpoint"]).engine

    answers = decode(engine, vector, batch_size=2)

    for row, (found, expected) in enumerate(zip(answers, vector["expect"], strict=True)):
        compare(found, expected, vector, row)


def test_defaults_are_those_of_the_vectors() -> None:
    spec, settings = DecodeSpec().resolved(FAST_DLLM_V2, 32), read_golden("single_len40")["decode"]
    assert (spec.threshold, spec.sub_block_size, spec.block_cache, spec.temperature) == (
        settings["threshold"],
        settings["sub_block_size"],
        settings["block_cache"],
        settings["temperature"],
    )


def test_the_vectors_are_as_they_were_recorded() -> None:
    content = hashlib.sha256()
    for file in sorted(GOLDEN.glob("*.json")):
        content.update(file.name.encode() + file.read_bytes())
    assert content.hexdigest() == CONTENT, "tests/golden has changed: the vectors are facts, not expectations"
    assert len(VECTORS) == 32
