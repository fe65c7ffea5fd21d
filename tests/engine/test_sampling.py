"""Draws: a function of seed, column and step alone, from the nucleus the specification describes."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import MASK, Model, small_model
from decoding_cases import models, requests
from traces import trace
from unmask.engine.prompt import Request
from unmask.engine.rules import ranked
from unmask.engine.sampling import GREEDY, drawn, packed_predictions, request_seed, to_host, uniform
from unmask.spec import DecodeSpec
from unmask.spec.family import ConfidenceName
from unmask.spec.rule import ScoreName

HOT = DecodeSpec(max_new_tokens=24, temperature=0.9, top_p=0.95, stop_tokens=())


def probabilities_as_logits(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


@given(models(), st.lists(requests(most_new=24), min_size=2, max_size=4), st.data())
def test_draws_do_not_depend_on_the_batch(model: Model, rows: list[Request], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows))), label="order")
    batch_size = data.draw(st.integers(1, len(rows)), label="batch size")
    together = trace(model.engine, [rows[index] for index in order], HOT, batch_size)
    for index, found in zip(order, together, strict=True):
        (alone,) = trace(model.engine, [rows[index]], HOT)
        assert found.steps == alone.steps
        assert found.answer.ids == alone.answer.ids
        assert found.answer.ledger == alone.answer.ledger


def test_the_same_request_draws_the_same_again() -> None:
    engine = small_model().engine
    assert engine.generate([[1, 2, 3]], HOT)[0].ids == engine.generate([[1, 2, 3]], HOT)[0].ids


def test_another_seed_or_repeat_draws_something_else() -> None:
    engine = small_model(seed=1).engine
    settings = {"max_new_tokens": 24, "temperature": 2.0, "top_p": 0.95, "stop_tokens": ()}
    rows = [
        Request([1, 2, 3]),
        Request([1, 2, 3], repeat=1),
        Request([1, 2, 3], repeat=2),
        Request([1, 2, 3], seed=7),
        Request([1, 2, 3], seed=8),
    ]
    answers = [tuple(answer.ids) for answer in engine.generate(rows, settings)]
    answers.append(tuple(engine.generate([[1, 2, 3]], settings | {"seed": 1})[0].ids))
    assert len(set(answers)) == len(answers)


def test_a_given_seed_stands_over_the_derived_one() -> None:
    engine = small_model().engine
    derived = request_seed(0, [1, 2, 3], repeat=1)
    first, second = engine.generate([Request([1, 2, 3], repeat=1), Request([1, 2, 3], seed=derived)], HOT)
    assert first.ids == second.ids


def test_seeds_are_without_effect_at_temperature_zero() -> None:
    engine = small_model().engine
    rows = [Request([1, 2, 3], seed=seed) for seed in range(3)]
    answers = engine.generate(rows, {"max_new_tokens": 24, "stop_tokens": ()})
    assert len({tuple(answer.ids) for answer in answers}) == 1


@pytest.mark.parametrize("prompt_length", [3, 32, 40])
def test_a_tiny_nucleus_takes_the_most_likely_tokens(prompt_length: int) -> None:
    """Its only token has confidence 1, so every position of a sub-block is taken: like any threshold near 0."""
    engine = small_model().engine
    prompt = [place % 50 for place in range(prompt_length)]
    narrow = DecodeSpec(max_new_tokens=40, temperature=0.7, top_p=1e-6, stop_tokens=())
    greedy = DecodeSpec(max_new_tokens=40, threshold=1e-6, stop_tokens=())
    (drew,), (took,) = trace(engine, [prompt], narrow), trace(engine, [prompt], greedy)
    assert drew.steps == took.steps


def test_tokens_after_a_prefill_or_commit_are_never_drawn() -> None:
    """Same state, many seeds: the first token behind a whole block is always the most likely one."""
    engine = small_model().engine
    rows = [Request([place % 50 for place in range(32)], 1, seed=seed) for seed in range(20)]
    hot = {"temperature": 5.0, "top_p": 1.0, "stop_tokens": ()}
    greedy = engine.generate([rows[0]], {"stop_tokens": ()})[0].ids
    assert all(answer.ids == greedy for answer in engine.generate(rows, hot))


def test_a_low_temperature_is_greedy() -> None:
    engine = small_model().engine
    cold = DecodeSpec(max_new_tokens=30, temperature=1e-4, threshold=1e-6, stop_tokens=())
    greedy = DecodeSpec(max_new_tokens=30, threshold=1e-6, stop_tokens=())
    assert engine.generate([[1, 2, 3]], cold)[0].ids == engine.generate([[1, 2, 3]], greedy)[0].ids


def test_the_smallest_temperatures_do_not_overflow() -> None:
    engine = small_model().engine
    cold = DecodeSpec(max_new_tokens=30, temperature=1e-40, threshold=1e-6, stop_tokens=())
    greedy = DecodeSpec(max_new_tokens=30, threshold=1e-6, stop_tokens=())
    assert engine.generate([[1, 2, 3]], cold)[0].ids == engine.generate([[1, 2, 3]], greedy)[0].ids


def test_the_mask_token_is_never_a_candidate() -> None:
    for temperature in (0.0, 2.0):
        logits = torch.zeros(200, 8)
        logits[:, 3] = 50.0
        uniforms = [uniform(1, column, 0) for column in range(200)]
        found = to_host(packed_predictions(logits, 3, uniforms, temperature, 1.0))
        assert 3 not in found.tokens
        assert all(math.isclose(confidence, 1 / 7, rel_tol=1e-5) for confidence in found.confidences)


@pytest.mark.parametrize(
    "top_p, kept", [(0.05, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (0.89, 3), (0.91, 4), (1.0, 4)]
)
def test_the_nucleus_holds_tokens_while_the_mass_before_them_is_within_top_p(top_p: float, kept: int) -> None:
    shares = (0.2, 0.4, 0.1, 0.3)
    ranked = [1, 3, 0, 2]
    places = torch.linspace(0, 1 - 2**-24, 2001)
    tokens, doubts, _ = drawn(probabilities_as_logits(*shares).expand(2001, 4), places, 1.0, top_p)
    confidences = 1 / (1 + doubts)
    mass = sum(shares[token] for token in ranked[:kept])
    assert set(tokens.tolist()) == set(ranked[:kept])
    for token, confidence in zip(tokens.tolist(), confidences.tolist(), strict=True):
        assert math.isclose(confidence, shares[token] / mass, rel_tol=1e-5)
    for token, count in Counter(tokens.tolist()).items():
        assert abs(count / 2001 - shares[token] / mass) < 2e-3


def test_temperature_sharpens_and_flattens() -> None:
    logits = probabilities_as_logits(0.8, 0.2)
    for temperature in (0.5, 1.0, 2.0):
        powers = [0.8 ** (1 / temperature), 0.2 ** (1 / temperature)]
        token, doubt, _ = drawn(logits, torch.tensor([0.0]), temperature, 1.0)
        assert token.item() == 0
        assert math.isclose(1 / (1 + doubt.item()), powers[0] / sum(powers), rel_tol=1e-5)


def test_greedy_positions_and_draws_may_share_a_forward() -> None:
    logits = probabilities_as_logits(0.5, 0.3, 0.2, 1e-9).repeat(3, 1)
    found = to_host(packed_predictions(logits, 3, [GREEDY, 0.6, 0.95], 1.0, 1.0))
    assert found.tokens == [0, 1, 2]
    assert [round(confidence, 5) for confidence in found.confidences] == [0.5, 0.3, 0.2]


def test_uniforms_are_even_and_depend_on_all_their_arguments() -> None:
    values = [uniform(seed, column, step) for seed in range(10) for column in range(20) for step in range(20)]
    assert all(0 <= value < 1 for value in values)
    assert len(set(values)) > 0.999 * len(values)
    tenths = Counter(int(value * 10) for value in values)
    assert all(abs(count / len(values) - 0.1) < 0.02 for count in tenths.values())
    assert uniform(1, 2, 3) == uniform(1, 2, 3)
    assert 0 <= uniform(-5, 0, 0) < 1
    assert 0 <= uniform(1 << 70, 0, 0) < 1


def test_request_seeds_differ_by_every_part() -> None:
    seeds = {
        request_seed(0, [1, 2], 0),
        request_seed(1, [1, 2], 0),
        request_seed(0, [1, 2], 1),
        request_seed(0, [2, 1], 0),
        request_seed(0, [1, 2, 0], 0),
        request_seed(0, [12], 0),
    }
    assert len(seeds) == 6


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_confidences_are_probabilities_over_the_whole_vocabulary(temperature: float) -> None:
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(6, MASK + 1, generator=draw) * 4
    masked = logits.double()
    masked[:, MASK] = -math.inf
    expected = masked.softmax(dim=-1)
    found = to_host(packed_predictions(logits.clone(), MASK, [0.5] * 6, temperature, 1.0))
    for row, (token, confidence) in enumerate(zip(found.tokens, found.confidences, strict=True)):
        assert math.isclose(confidence, expected[row, token].item(), rel_tol=1e-5)


# Scores, against double precision.


def random_logits(scale: float, rows: int = 40, seed: int = 3) -> torch.Tensor:
    """Rows of a model as sure as the scale says, with MASK the likeliest token."""
    logits = torch.randn(rows, MASK + 1, generator=torch.Generator().manual_seed(seed)) * scale
    logits[:, MASK] = 100.0
    return logits


def exact_scores(logits: torch.Tensor, score: str) -> list[float]:
    masked = logits.double()
    masked[:, MASK] = -math.inf
    shares = masked.softmax(dim=-1)
    if score == "confidence":
        return list(shares.max(dim=-1).values.tolist())
    if score == "margin":
        best = shares.topk(2, dim=-1).values
        return list((best[:, 0] - best[:, 1]).tolist())
    return list((shares * (shares + 1e-10).log()).sum(dim=-1).tolist())


@pytest.mark.parametrize("scale", [0.3, 3.0, 12.0])
@pytest.mark.parametrize("score", ["confidence", "margin", "entropy"])
def test_scores_are_those_of_double_precision(score: ScoreName, scale: float) -> None:
    logits = random_logits(scale)
    found = to_host(packed_predictions(logits.clone(), MASK, [], 0.0, 1.0, score), score)
    for got, expected in zip(found.scores or found.confidences, exact_scores(logits, score), strict=True):
        assert math.isclose(got, expected, rel_tol=2e-5, abs_tol=1e-9)


@pytest.mark.parametrize("score", ["margin", "entropy"])
def test_scores_of_draws_are_those_of_the_nucleus(score: ScoreName) -> None:
    logits = probabilities_as_logits(0.4, 0.3, 0.2, 0.1)
    found = to_host(packed_predictions(logits, None, [0.7], 1.0, 0.6, score), score)
    assert found.tokens == [1]
    best, second = 4 / 7, 3 / 7
    wanted = best - second if score == "margin" else best * math.log(best) + second * math.log(second)
    assert math.isclose(found.scores[0], wanted, rel_tol=1e-5)
    assert math.isclose(found.confidences[0], second, rel_tol=1e-5)


@pytest.mark.parametrize("score", ["confidence", "margin", "entropy"])
def test_a_sure_model_is_ranked_as_double_precision_ranks_it(score: ScoreName) -> None:
    """At logit scale 40 most confidences round to 1 in single precision, and the leftmost would always win."""
    logits = random_logits(scale=40.0)
    masked = logits.clone()
    masked[:, MASK] = -math.inf
    rounded = masked.softmax(dim=-1).max(dim=-1).values
    assert (rounded == 1).sum() >= 10, "ties in single precision, or this test shows nothing"

    found = to_host(packed_predictions(logits.clone(), MASK, [], 0.0, 1.0, score), score)
    scores = found.scores or found.confidences
    assert ranked(scores) == ranked(exact_scores(logits, score))
    assert ranked(scores) != ranked(rounded.tolist())


def test_draws_of_a_sure_model_are_ranked_too() -> None:
    logits = random_logits(scale=40.0)
    exact = exact_scores(logits, "confidence")
    found = to_host(packed_predictions(logits.clone(), MASK, [0.0] * len(logits), 1.0, 1.0))
    assert ranked(found.confidences) == ranked(exact)


def test_a_tempered_confidence_is_a_share_of_all_tokens() -> None:
    logits = probabilities_as_logits(0.4, 0.3, 0.2, 0.1).repeat(2, 1)
    confidences: tuple[tuple[ConfidenceName, float], ...] = (("nucleus", 3 / 7), ("tempered", 0.3))
    for name, expected in confidences:
        found = to_host(packed_predictions(logits.clone(), None, [0.7, 0.7], 1.0, 0.6, confidence=name))
        assert found.tokens == [1, 1]
        assert all(math.isclose(confidence, expected, rel_tol=1e-5) for confidence in found.confidences)


def test_infinite_logits_are_no_certainty() -> None:
    logits = torch.zeros(2, 8)
    logits[0, 3] = math.inf
    found = to_host(packed_predictions(logits, None, [], 0.0, 1.0))
    assert math.isnan(found.confidences[0])
    assert math.isclose(found.confidences[1], 1 / 8)
