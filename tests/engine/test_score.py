"""Scoring is generation with forced tokens: proper likelihoods, shared forwards, policies that reach it."""

import json
import math
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import GOLDEN, OF_FAMILY, load_recipe, small_model
from unmask import DecodeSpec, ScoreRequest
from unmask.engine.decode import Decoder
from unmask.engine.engine import Engine
from unmask.engine.forward import Workspace
from unmask.engine.sampling import Predictions, uniform
from unmask.engine.schedule import Piece
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.engine.unmasking import UnmaskingWriter
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy
from unmask.spec.rule import ThresholdSpec

TOY = {"vocab_size": 6, "mask_token_id": 5, "eos_token_id": 4, "num_hidden_layers": 3}
TOY_TOKENS = range(5)
BOTH = ["sub", "block"]
POLICIES = [
    None,
    {"kind": "layer_reuse", "k": 2, "unit": "residual", "layers": [1, 2], "on": BOTH},
    {"kind": "layer_reuse", "k": 3, "unit": "output", "layers": [1], "on": BOTH},
    {"kind": "layer_reuse", "k": 2, "unit": "attention", "layers": [0, 2], "on": BOTH},
    {"kind": "layer_reuse", "k": 2, "unit": "mlp", "layers": [1], "on": BOTH},
    {"kind": "trim", "keep": 0.0},
    {"kind": "adaptive", "max_drift": 1.0},
]


def toy() -> Engine:
    engine = small_model(seed=3, logit_scale=2.0, **TOY).engine
    return Engine(engine.transformer, engine.mask_token, engine.checkpoint, make_policy)


def vector():
    return json.loads((GOLDEN / "loglikelihood_first_token.json").read_text())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["kind"] if policy else "full")
@pytest.mark.parametrize(
    "estimator, order", [("chain", "confidence"), ("chain", "left_to_right"), ("onepass", "confidence")]
)
@pytest.mark.parametrize("length", [5, 30, 32])
def test_a_likelihood_sums_to_one_over_all_targets_of_a_length(policy, estimator, order, length) -> None:
    prefix = [index % 5 for index in range(length)]
    requests = [ScoreRequest(prefix, target) for target in product(TOY_TOKENS, repeat=3)]
    found = toy().score(requests, estimator, order, {"sub_block_size": 4}, policy, batch_size=len(requests))
    assert math.isclose(sum(math.exp(score.logprob) for score in found.scores), 1.0, rel_tol=1e-4)
    assert sum(score.is_greedy for score in found.scores) == 1


class ChainSampler:
    """The sampler whose likelihood `chain` is: the most confident column, a token drawn at temperature 1."""

    sees_the_best = True

    def __init__(self, mask_token: int) -> None:
        self.mask_token = mask_token

    def read(self, logits: torch.Tensor, pieces: list[Piece]) -> list[Predictions]:
        logits[:, self.mask_token] = -torch.inf
        probabilities, parts, start = logits.softmax(dim=-1), [], 0
        for piece in pieces:
            rows = probabilities[start : start + len(piece.reads)]
            draws = [
                uniform(piece.sequence.seed, column, len(piece.sequence.ledger.entries))
                for column in piece.reads
            ]
            tokens = [
                int(torch.searchsorted(row.cumsum(0), torch.tensor(draw)))
                for row, draw in zip(rows, draws, strict=True)
            ]
            parts.append(Predictions(tokens, rows.max(dim=-1).values.tolist()))
            start += len(piece.reads)
        return parts


@torch.inference_mode()
def test_chain_agrees_with_the_frequencies_of_its_sampler() -> None:
    engine, prefix, draws = toy(), [0, 1, 2, 3, 4] * 6 + [1], 4000
    assert len(prefix) == 31, "one denoised column, one commit and one column of the next block"
    settings = BlockSettings(32, 8, "dual", engine.mask_token, frozenset())
    sequences = [SequenceState(seed, prefix, 3, settings, 3, seed=seed * 7919 + 1) for seed in range(draws)]
    for sequence in sequences:
        sequence.reads_until = sequence.end  # as where targets are scored
    policy = make_policy({"kind": "layer_reuse", "k": 2, "layers": [1], "on": BOTH}, 3)
    decoder = Decoder(
        engine.workspace(200, 64, 32),
        policy,
        UnmaskingWriter(ThresholdSpec(threshold=1.0)),
        ChainSampler(engine.mask_token),
    )
    counts = Counter(
        tuple(event.answer) for event in decoder.run(sequences) if isinstance(event, SequenceState)
    )
    targets = list(product(TOY_TOKENS, repeat=3))
    found = engine.score(
        [ScoreRequest(prefix, target) for target in targets], policy=policy, batch_size=len(targets)
    )
    expected = {
        target: draws * math.exp(score.logprob) for target, score in zip(targets, found.scores, strict=True)
    }
    frequent = [target for target in targets if expected[target] >= 5]
    chi_squared = sum((counts[target] - expected[target]) ** 2 / expected[target] for target in frequent)
    assert len(frequent) > 5
    assert chi_squared < len(frequent) + 5 * math.sqrt(2 * len(frequent)), "five standard deviations"


def test_first_token_is_the_published_score() -> None:
    content = vector()
    engine = load_recipe(content["checkpoint"]).engine
    requests = [ScoreRequest(row["prefix"], row["target"]) for row in content["rows"]]
    found = engine.score(requests, "first_token")
    for score, row in zip(found.scores, content["rows"], strict=True):
        assert math.isclose(score.logprob, row["loglikelihood"], abs_tol=1e-3)


def test_canvas_without_reuse_is_the_published_score_of_single_tokens() -> None:
    content = vector()
    engine = load_recipe(content["checkpoint"]).engine
    rows = [row for row in content["rows"] if len(row["target"]) == 1]
    requests = [ScoreRequest(row["prefix"], row["target"]) for row in rows]
    for score, row in zip(engine.score(requests, "canvas").scores, rows, strict=True):
        assert math.isclose(score.logprob, row["loglikelihood"], abs_tol=1e-3)


def test_canvas_under_reuse_moves_and_is_the_same_for_every_k_above_one() -> None:
    engine = toy()
    requests = [ScoreRequest([1, 2, 3], [token]) for token in TOY_TOKENS]
    values = {}
    for k in (1, 2, 3):
        found = engine.score(requests, "canvas", policy={"kind": "layer_reuse", "k": k, "layers": [1, 2]})
        values[k] = [score.logprob for score in found.scores]
        assert (found.ledgers[0].reuse_fraction() > 0) == (k > 1)
    assert values[2] == values[3]
    assert values[1] != values[2]


@pytest.mark.parametrize("estimator", ["chain", "onepass", "first_token"])
@pytest.mark.parametrize("policy", [None, POLICIES[1]], ids=["full", "residual"])
def test_scores_do_not_depend_on_batch_order_or_company(estimator, policy) -> None:
    engine = toy()
    requests = [
        ScoreRequest([(start + index) % 5 for index in range(length)], target)
        for start, length in [(0, 3), (1, 31), (2, 32), (0, 70)]
        for target in ([1], [1, 2], [4, 0, 0, 2, 1, 1, 3, 3, 2])
    ]
    together = [score.logprob for score in engine.score(requests, estimator, policy=policy).scores]
    backwards = engine.score(requests[::-1], estimator, policy=policy, batch_size=3).scores
    alone = [engine.score([request], estimator, policy=policy).scores[0].logprob for request in requests]
    assert together == pytest.approx(alone, abs=1e-4)
    assert [score.logprob for score in backwards][::-1] == pytest.approx(alone, abs=1e-4)


def test_choices_of_a_question_share_prefill_and_forwards() -> None:
    engine, prefix = toy(), [*[1, 2, 3, 4] * 20, 1, 2]
    single = engine.score([ScoreRequest(prefix, [token]) for token in TOY_TOKENS])
    assert single.ledgers[0].steps() == {"prefill": 1, "block": 1, "sub": 0, "commit": 0}
    assert [score.group for score in single.scores] == [0] * 5
    longer = engine.score([ScoreRequest(prefix, [token, token, 0]) for token in (0, 1, 2)])
    shared_state, apart = 1, 3 * 2
    assert longer.ledgers[0].steps() == {"prefill": 1, "block": shared_state, "sub": apart, "commit": 0}


def test_a_chain_score_is_greedy_exactly_for_what_greedy_decoding_writes() -> None:
    engine = small_model(seed=5).engine
    prefix = [3, 1, 4, 1, 5]
    decoded = engine.generate([prefix], DecodeSpec(max_new_tokens=27, threshold=1.0, stop_tokens=()))[0].ids
    other = [*decoded[:-1], (decoded[-1] + 1) % 60]
    yes, no = engine.score([ScoreRequest(prefix, decoded), ScoreRequest(prefix, other)]).scores
    assert yes.is_greedy
    assert not no.is_greedy


def test_scoring_and_generation_see_the_same_rows_as_changed() -> None:
    """A replayed step writes no keys, so its rows stay changed until a step renews them."""
    policy = {
        "kind": "combine",
        "rows": {"kind": "trim", "keep": 0.0},
        "layers": {"kind": "layer_reuse", "k": 2, "layers": [1], "on": BOTH},
    }
    engine = toy()
    decode = DecodeSpec(max_new_tokens=27, threshold=1.0, stop_tokens=())
    prefix = [0, 1, 2, 3, 4]
    generated = engine.generate([prefix], decode, policy)[0]
    scored = engine.score([ScoreRequest(prefix, generated.ids)], policy=policy)
    assert scored.scores[0].is_greedy
    assert scored.ledgers[0] == generated.ledger


def test_a_policy_that_cannot_act_says_so() -> None:
    engine, policy = toy(), POLICIES[1]
    single = [ScoreRequest([1, 2, 3], [token]) for token in TOY_TOKENS]
    assert "single-token" in (engine.score(single, policy=policy).inactive or "")
    assert "one step" in (engine.score(single, "first_token", policy=policy).inactive or "")
    assert engine.score(single).inactive is None
    assert engine.score([ScoreRequest([1, 2, 3], [1, 2, 3])], policy=policy).inactive is None


@pytest.mark.parametrize(
    "request_, estimator, says",
    [
        (ScoreRequest([], [1]), "chain", "at least one token"),
        (ScoreRequest([1], []), "chain", "at least one token"),
        (ScoreRequest([1], [1, 2]), "canvas", "use the estimator chain"),
        (ScoreRequest([1], [99]), "chain", "outside the vocabulary"),
        (ScoreRequest([1] * 4096, [1]), "chain", "context is 4096"),
        (ScoreRequest([1], [1]), "guess", "is no estimator"),
    ],
)
def test_bad_requests_get_one_sentence(request_, estimator, says) -> None:
    with pytest.raises(UnmaskError, match=says):
        toy().score([request_], estimator)


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Requests in each forward."""
    counted: list[int] = []
    real = Workspace.forward

    def counting(self: Workspace, tokens, segments, *rest):
        counted.append(len(segments))
        return real(self, tokens, segments, *rest)

    monkeypatch.setattr(Workspace, "forward", counting)
    return counted


@pytest.mark.parametrize("estimator", ["chain", "onepass", "canvas"])
def test_single_token_choices_of_a_question_take_one_slot(estimator, forwards) -> None:
    """Sixteen questions are scored at a time, not four."""
    requests = [ScoreRequest([1, 2, question], [token]) for question in range(5) for token in range(4)]
    requests += [ScoreRequest([2, 3, 3, question], [token]) for question in range(5) for token in range(4)]
    toy().score(requests, estimator, batch_size=10)
    assert forwards == [10] * (2 if estimator == "canvas" else 1)


def test_a_group_of_single_tokens_is_one_even_where_the_batch_is_smaller(forwards) -> None:
    requests = [ScoreRequest([1, 2], [token]) for token in range(4)]
    assert {score.group for score in toy().score(requests, batch_size=1).scores} == {0}
    assert forwards == [1]


def test_targets_that_one_step_reveals_reserve_nothing(forwards) -> None:
    requests = [ScoreRequest([1, 2, question], [token, 0]) for question in range(3) for token in range(3)]
    toy().score(requests, "onepass", batch_size=3)
    assert forwards == [3]


@settings(max_examples=25, deadline=None)
@given(
    way=st.sampled_from([("chain", "confidence"), ("chain", "left_to_right"), ("onepass", "confidence")]),
    family=st.sampled_from(["fast_dllm_v2", "sdar", "autoregressive"]),
    length=st.sampled_from([3, 30, 31, 32]),
    targets=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=9),
    batch_size=st.integers(1, 6),
)
def test_what_forks_finds_its_slot(way, family, length, targets, batch_size) -> None:
    engine = small_model(seed=3, **OF_FAMILY[family]).engine
    estimator, order = ("chain", "confidence") if family == "autoregressive" else way
    requests = [ScoreRequest([first] * length, target) for first in (1, 2) for target in targets]
    wide = engine.score(requests, estimator, order, batch_size=64).scores
    narrow = engine.score(requests, estimator, order, batch_size=batch_size).scores
    assert [score.logprob for score in narrow] == pytest.approx([score.logprob for score in wide], abs=1e-4)
