"""The published decoder's tokens and steps, vector by vector."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from checkpoints import GOLDEN, golden_settings, load_recipe, read_golden
from traces import first_difference
from unmask.conformance.check import check
from unmask.conformance.vectors import read_vector
from unmask.engine.engine import Engine
from unmask.engine.events import Generation
from unmask.engine.prompt import Request
from unmask.spec import DecodeSpec
from unmask.spec.family import FAST_DLLM_V2


def needs_no_policy(name: str) -> bool:
    policy = read_golden(name).get("policy")
    return not name.startswith("loglikelihood") and (policy is None or policy["k"] == 1)


FAMILIES = {
    "fast_dllm_v2": ("a2b525a2571b2920fd9aca7a2a766215f83450c953108418260776e7339a20de", 39),
    "sdar": ("625c3464e68152bffe577300a572434441c4c327210d279223915810cc43ead2", 34),
    "llada": ("873949d3a890262df14ef810c670d70d703e3223a7a97409e1d38f0f0410032d", 36),
    "dream": ("0d82131a47f56d36ecbd4fd03364c6acc5db1a2d097c9a0b63f15b5aa2e2bc80", 35),
}
"""What the vectors of each family hash to, and how many there are."""


def of_family(family: str) -> list[str]:
    names = sorted(file.stem for file in GOLDEN.glob("*.json"))
    return [name for name in names if read_golden(name).get("family", "fast_dllm_v2") == family]


VECTORS = [name for name in of_family("fast_dllm_v2") if needs_no_policy(name)]


def decode(engine: Engine, vector: dict[str, Any], batch_size: int) -> list[Generation]:
    settings = golden_settings(vector)
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
    spec, settings = DecodeSpec().resolved(FAST_DLLM_V2, 32), golden_settings(read_golden("single_len40"))
    assert (spec.threshold, spec.sub_block_size, spec.cache, spec.temperature) == (
        settings["threshold"],
        settings["sub_block_size"],
        settings["cache"],
        settings["temperature"],
    )


@pytest.mark.parametrize("name", [*of_family("sdar"), *of_family("llada"), *of_family("dream")])
def test_vectors_in_a_publishers_terms(name: str, tmp_path: Path) -> None:
    """Tokens, ends, forwards, and the positions that every step wrote; of likelihoods, the estimates."""
    vector = read_vector(GOLDEN / f"{name}.json")
    outcome = check(vector, tmp_path, "cpu")
    assert (outcome.first_difference, outcome.tokens_equal) == (None, True)
    assert outcome.steps_equal is (None if vector.forwards is None else True)


def test_vectors_in_a_publishers_terms_say_what_every_step_writes() -> None:
    assert sum(read_golden(name)["written"] is not None for name in of_family("sdar")) >= 28


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vectors_are_as_they_were_recorded(family: str) -> None:
    content = hashlib.sha256()
    for name in of_family(family):
        content.update(f"{name}.json".encode() + (GOLDEN / f"{name}.json").read_bytes())
    found = content.hexdigest(), len(of_family(family))
    assert found == FAMILIES[family], "tests/golden has changed: the vectors are facts, not expectations"


def test_every_vector_belongs_to_a_family() -> None:
    assert sum(len(of_family(family)) for family in FAMILIES) == len(list(GOLDEN.glob("*.json")))
