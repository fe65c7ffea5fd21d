"""Models that predict one token at a time have no mask token: nothing stands in for one, no entry is left out."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import unmask
from brute_force import DenseNetwork
from checkpoints import VOCABULARY, small_config
from traces import LOGIT_ROUNDING
from unmask.engine.probe import probe
from unmask.engine.score import ScoreRequest
from unmask.errors import UnmaskError
from unmask.model.synthetic import write_checkpoint
from unmask.spec import DecodeSpec

LAST = VOCABULARY - 1


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_config(model_type=request.param, eos_token_id=None)
    del config["bd_size"], config["mask_token_id"]
    recipe = {"seed": 9, "logit_scale": 6.0, "config": config}
    return write_checkpoint(recipe, tmp_path_factory.mktemp(request.param))


def prompts(*lengths: int) -> list[list[int]]:
    draw = random.Random(3)
    return [[LAST, *(draw.randrange(VOCABULARY) for _ in range(length - 1))] for length in lengths]


def greedy(oracle: DenseNetwork, prompt: list[int], wanted: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(wanted):
        best = oracle.logits(tokens, block_size=1)[-1].topk(2)
        assert best.values[0] - best.values[1] > LOGIT_ROUNDING
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :]


def test_tokens_are_those_of_a_plain_loop_alone_and_in_a_batch(folder: Path) -> None:
    engine, oracle, asked = unmask.load(folder), DenseNetwork(folder), prompts(1, 5, 40)
    assert engine.mask_token is None
    expected = [greedy(oracle, prompt, 12) for prompt in asked]
    for batch_size in (1, 3):
        answers = engine.generate(asked, {"max_new_tokens": 12}, batch_size=batch_size)
        assert [answer.ids for answer in answers] == expected
    assert engine.generate([asked[0]], {"max_new_tokens": 12})[0].ledger.steps()["commit"] == 11


def test_scores_leave_no_entry_out(folder: Path) -> None:
    """With -1 for a mask the last entry would be taken out of the softmax."""
    engine, oracle = unmask.load(folder), DenseNetwork(folder)
    (prefix,), target = prompts(9), [LAST, 3, LAST, 17]
    (scored,) = engine.score([ScoreRequest(prefix, target)]).scores
    logits = oracle.logits([*prefix, *target], block_size=1).log_softmax(-1)
    rows = torch.arange(len(prefix) - 1, len(prefix) + len(target) - 1)
    assert scored.logprob == pytest.approx(float(logits[rows, torch.tensor(target)].sum()), abs=1e-4)


@pytest.mark.parametrize("action", ["load", "probe"])
def test_what_needs_a_mask_is_refused(folder: Path, action: str) -> None:
    actions: dict[str, Any] = {
        "load": lambda: unmask.load(folder, mask_token_id=LAST),
        "probe": lambda: probe(unmask.load(folder), [[1, 2]], DecodeSpec()),
    }
    with pytest.raises(UnmaskError, match=r"predicts one token at a time.*\.$"):
        actions[action]()
