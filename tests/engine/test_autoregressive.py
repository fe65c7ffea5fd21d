"""Models that predict one token at a time, as blocks of one: prefilled in one call, scored from prefills."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from test_ledger_counts import WatchedEngine

from checkpoints import MASK, OF_FAMILY, Model, engine_of, small_model, write_small
from unmask.cli import app
from unmask.engine.prompt import Request
from unmask.engine.score import ScoreRequest
from unmask.errors import UnmaskError
from unmask.model.token_files import mask_token_of
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.family import FAMILIES

QWEN3 = OF_FAMILY["autoregressive"]
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2": QWEN3 | {"model_type": "qwen2", "bd_size": None},
    "qwen3": QWEN3,
    "llama": QWEN3 | {"model_type": "llama", "tie_word_embeddings": True},
}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def model(name: str = "qwen3", seed: int = 0) -> Model:
    return small_model(seed, **SHAPES[name])


def watched(name: str = "qwen3") -> WatchedEngine:
    return engine_of(WatchedEngine, model(name).engine)


def logprobs(of: Model, tokens: list[int]) -> torch.Tensor:
    return of.oracle.logits(tokens, 1).log_softmax(dim=-1)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("length", [1, 7, 300])
def test_tokens_are_the_likeliest_ones_one_after_the_other(name: str, length: int) -> None:
    of, tokens = model(name), [index * 11 % MASK for index in range(length)]
    (answer,) = of.engine.generate([tokens], {"max_new_tokens": 20, "stop_tokens": ()})
    for token in answer.ids:
        assert token == int(logprobs(of, tokens)[-1].argmax())
        tokens.append(token)


def test_no_entry_of_the_vocabulary_is_left_out() -> None:
    """A mask id of -1 would index the last one; its probability counts like any other's."""
    of = model()
    (score,) = of.engine.score([ScoreRequest(PROMPT, [MASK])]).scores
    assert math.isclose(score.logprob, float(logprobs(of, PROMPT)[-1, MASK]), rel_tol=1e-5)
    every = of.engine.score([ScoreRequest(PROMPT, [token]) for token in range(MASK + 1)]).scores
    assert math.isclose(sum(math.exp(each.logprob) for each in every), 1, rel_tol=1e-5)


@pytest.mark.parametrize("length", [1, 200, 900])
def test_a_prompt_is_prefilled_in_one_call(length: int) -> None:
    engine = watched()
    (answer,) = engine.generate([[1] * length], {"max_new_tokens": 3, "stop_tokens": ()})
    assert answer.ledger.steps() == {"prefill": 1, "block": 0, "sub": 0, "commit": 2}
    assert len(engine.forwards) == 3
    assert answer.ledger.rows()["prefill"] == length


def test_a_stop_token_ends_the_answer() -> None:
    engine = model().engine
    ids = engine.generate([PROMPT], {"max_new_tokens": 12, "stop_tokens": ()})[0].ids
    (answer,) = engine.generate([PROMPT], {"max_new_tokens": 12, "stop_tokens": (ids[5],)})
    assert answer.ids == ids[: ids.index(ids[5]) + 1]
    assert answer.finish_reason == "stop"


# Draws.


def test_every_token_is_drawn_the_first_one_too() -> None:
    rows = [Request(PROMPT, 1, seed=seed) for seed in range(60)]
    hot = {"temperature": 5.0, "top_p": 1.0, "stop_tokens": ()}
    assert len({answer.ids[0] for answer in model().engine.generate(rows, hot)}) > 20


def test_draws_follow_the_models_probabilities() -> None:
    of, draws = model(), 3000
    shares = logprobs(of, PROMPT)[-1].exp()
    rows = [Request(PROMPT, 1, seed=seed * 7919) for seed in range(draws)]
    answers = of.engine.generate(rows, {"temperature": 1.0, "top_p": 1.0, "stop_tokens": ()}, batch_size=256)
    counts = torch.bincount(torch.tensor([answer.ids[0] for answer in answers]), minlength=len(shares))
    likely = shares * draws >= 5
    chi_squared = (((counts - shares * draws) ** 2) / (shares * draws))[likely].sum()
    assert chi_squared < likely.sum() + 5 * math.sqrt(2 * int(likely.sum()))


# Scores.


@given(st.data())
def test_scores_are_sums_of_conditional_log_probabilities(data: st.DataObject) -> None:
    of, tokens = model(), st.integers(0, MASK)
    prefixes = data.draw(st.lists(st.lists(tokens, min_size=1, max_size=40), min_size=1, max_size=3))
    targets = st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=4)
    requests = [
        ScoreRequest(prefix, target)
        for prefix in prefixes
        for target in data.draw(st.lists(targets, min_size=1, max_size=4))
    ]
    found = of.engine.score(requests, batch_size=data.draw(st.integers(1, 6)))
    for request, score in zip(requests, found.scores, strict=True):
        whole = [*request.prefix, *request.target]
        shares = logprobs(of, whole)[len(request.prefix) - 1 : -1]
        expected = sum(float(row[token]) for row, token in zip(shares, request.target, strict=True))
        assert math.isclose(score.logprob, expected, rel_tol=1e-4, abs_tol=1e-5)
        greedy = all(int(row.argmax()) == token for row, token in zip(shares, request.target, strict=True))
        assert score.is_greedy is greedy


@pytest.mark.parametrize("length", [2, 255, 256, 257, 700])
def test_a_long_target_is_scored_from_one_prefill(length: int) -> None:
    of, engine = model(), watched()
    target = [index * 13 % MASK for index in range(length)]
    found = engine.score([ScoreRequest(PROMPT, target)])
    shares = logprobs(of, [*PROMPT, *target])[len(PROMPT) - 1 : -1]
    expected = float(shares.gather(-1, torch.tensor(target)[:, None]).sum())
    assert math.isclose(found.scores[0].logprob, expected, rel_tol=1e-5)
    assert len(engine.forwards) == 1
    assert found.ledgers[0].steps() == {"prefill": 1, "block": 0, "sub": 0, "commit": 0}
    assert found.ledgers[0].rows()["prefill"] == len(PROMPT) + length - 1


def test_single_tokens_behind_one_prefix_are_scored_from_one_prefill() -> None:
    engine = watched()
    found = engine.score([ScoreRequest(PROMPT, [token]) for token in range(4)])
    assert len(engine.forwards) == 1
    assert [ledger.rows()["prefill"] for ledger in found.ledgers] == [len(PROMPT)]


def test_the_prefix_of_longer_targets_is_fed_once() -> None:
    engine = watched()
    targets = [[1], [2, 3], [2, 4], [5, 6, 7], [5, 6, 8]]
    found = engine.score([ScoreRequest(PROMPT, target) for target in targets])
    assert len(engine.forwards) == 2, "the prefix, then all that the targets do not have in common"
    (ledger,) = found.ledgers
    assert ledger.rows()["prefill"] == len(PROMPT) + 1 + 2
    rows = sum(len(segment.positions) for forward in engine.forwards for segment in forward)
    assert rows == ledger.rows()["prefill"]


@pytest.mark.parametrize("estimator", ["canvas", "onepass", "first_token"])
def test_other_estimators_are_refused(estimator: Any) -> None:
    with pytest.raises(UnmaskError, match=f"cannot be scored by {estimator}; use chain"):
        model().engine.score([ScoreRequest([1], [2])], estimator)


# Policies.


@pytest.mark.parametrize("values", [{"kind": "layer_reuse", "k": 2}, {"kind": "trim"}, {"kind": "adaptive"}])
def test_policies_cannot_act_and_say_so(values: dict[str, Any]) -> None:
    engine, policy = model().engine, make_policy(values, 2)
    plain = engine.generate([PROMPT], {"max_new_tokens": 10})[0]
    (answer,) = engine.generate([PROMPT], {"max_new_tokens": 10}, policy)
    assert (answer.ids, answer.ledger) == (plain.ids, plain.ledger)
    scores = engine.score([ScoreRequest(PROMPT, [1, 2])], policy=policy)
    assert scores.inactive is not None
    assert "one token is predicted at a time" in scores.inactive


def test_a_mask_token_is_refused() -> None:
    with pytest.raises(UnmaskError, match="has no mask token; leave mask_token_id out"):
        mask_token_of(model().engine.config, Path("folder"), 5)


def test_ceilings_say_that_nothing_can_be_saved(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "small", **QWEN3)
    found = CliRunner().invoke(app, ["ceiling", "layer_reuse:k=2", "trim", "--model", str(folder), "--json"])
    assert found.exit_code == 0, found.output
    ceilings = json.loads(found.stdout)["ceilings"]
    assert [each["speedup"] for each in ceilings] == [1.0, 1.0]
    assert all(each["dead"].startswith("one token is predicted at a time") for each in ceilings)


def test_the_command_line_says_so_too(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "small", **QWEN3)
    asked = ["generate", "--ids", "1,2", "--model", str(folder), "--max-new-tokens", "3", "--policy", "trim"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "Hint: one token is predicted at a time" in found.stderr


def test_a_rehearsal_counts_what_the_engine_counts() -> None:
    (answer,) = model().engine.generate([PROMPT], {"max_new_tokens": 9, "stop_tokens": ()})
    script = Script(len(PROMPT), 9, 1, 1, False, family=FAMILIES["autoregressive"])
    assert rehearse(make_policy(None, 2), 2, script) == answer.ledger
