"""The engine against the oracle, which feeds the whole sequence under an explicit mask and keeps nothing."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brute_force import BruteForce
from checkpoints import MASK, Model, small_model
from decoding_cases import AWKWARD_LENGTHS, SHAPES, models, prompts, specs
from traces import CONFIDENCE_ROUNDING, LOGIT_ROUNDING, same_but_for_rounding, settings_of, trace
from unmask.model.geometry import Segment
from unmask.spec import DecodeSpec
from unmask.spec.family import CacheName


def check(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    settings = settings_of(spec, block_size=32)
    expected = BruteForce(model.oracle, prompt, settings)
    steps = expected.run()
    (found,) = trace(model.engine, [prompt], spec)
    if same_but_for_rounding(model.oracle, prompt, settings, steps, found.steps):
        assert found.answer.ids == expected.answer
        stopped = expected.answer[-1] in settings.stop_tokens
        assert found.answer.finish_reason == ("stop" if stopped else "length")


@given(models(), prompts(), specs(cache="none"))
def test_without_block_cache_equals_brute_force(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    check(model, prompt, spec)


@given(models(), prompts(), specs(cache="dual"))
def test_with_block_cache_equals_brute_force_on_remembered_keys(
    model: Model, prompt: list[int], spec: DecodeSpec
) -> None:
    check(model, prompt, spec)


@pytest.mark.parametrize("cache", ["none", "dual"])
@pytest.mark.parametrize("length", AWKWARD_LENGTHS)
def test_prompts_that_end_at_or_beside_a_block(length: int, cache: CacheName) -> None:
    model = small_model(seed=5)
    draw = random.Random(length)
    prompt = [draw.randrange(MASK) for _ in range(length)]
    spec = DecodeSpec(max_new_tokens=35, threshold=0.8, cache=cache, stop_tokens=())
    check(model, prompt, spec)


def test_a_prompt_of_exactly_one_block_is_read() -> None:
    """The reference's accident Q1: such a prompt never reached the model."""
    engine = small_model(seed=5).engine
    spec = DecodeSpec(max_new_tokens=16, stop_tokens=())
    answers = {tuple(engine.generate([[token] * 32], spec)[0].ids) for token in (1, 2, 3)}
    assert len(answers) == 3
    assert engine.generate([[1] * 32], spec)[0].ledger.steps()["prefill"] == 1


def test_first_token_of_a_whole_block_prompt_beside_longer_and_shorter_rows() -> None:
    """The reference's accident Q2: such a row's first token came from the wrong column."""
    model = small_model(seed=5)
    draw = random.Random(2)
    rows = [[draw.randrange(MASK) for _ in range(length)] for length in (40, 64, 100)]
    spec = DecodeSpec(max_new_tokens=20, stop_tokens=())
    settings = settings_of(spec, block_size=32)
    for prompt, found in zip(rows, trace(model.engine, rows, spec), strict=True):
        steps = BruteForce(model.oracle, prompt, settings).run()
        same_but_for_rounding(model.oracle, prompt, settings, steps, found.steps)


def test_a_prefill_in_several_forwards_equals_brute_force() -> None:
    model = small_model(seed=5)
    draw = random.Random(3)
    prompt = [draw.randrange(MASK) for _ in range(1100)]
    spec = DecodeSpec(max_new_tokens=4, threshold=0.5, stop_tokens=())
    check(model, prompt, spec)


@given(models(), prompts(), st.integers(1, 40), st.sampled_from((8, 16, 32)), st.floats(0.2, 1.0))
def test_with_sub_blocks_of_one_token_the_block_cache_changes_nothing(
    model: Model, prompt: list[int], wanted: int, block_size: int, threshold: float
) -> None:
    on, off = (
        DecodeSpec(
            max_new_tokens=wanted,
            block_size=block_size,
            sub_block_size=1,
            threshold=threshold,
            cache=cache,
            stop_tokens=(),
        )
        for cache in ("dual", "none")
    )
    (first,), (second,) = trace(model.engine, [prompt], on), trace(model.engine, [prompt], off)
    assert first.steps == second.steps
    assert first.answer.ids == second.answer.ids
    assert first.answer.ledger.steps()["sub"] == 0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"seed{shape['seed']}")
def test_logits_are_within_the_rounding_that_comparisons_allow(shape: dict[str, int]) -> None:
    model = small_model(**shape)
    draw = random.Random(4)
    tokens = [draw.randrange(MASK) for _ in range(96)]
    segments = [Segment(0, range(start, start + 32), start + 32) for start in (0, 32, 64)]
    with torch.inference_mode():
        hidden = model.engine.workspace(1, 96, 32).forward(tokens, segments).hidden_TD
        found = model.engine.transformer.logits(hidden).cpu()
    expected = model.oracle.logits(tokens, 32)
    assert (found - expected).abs().max() < LOGIT_ROUNDING / 3
    assert (found.softmax(-1) - expected.softmax(-1)).abs().max() < CONFIDENCE_ROUNDING
