"""The second embedded model: found by its name, and on a small sample what its card says, in counted forwards too."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import unmask
from unmask.errors import UnmaskError
from unmask.model.config import read_config
from unmask.model.hub import ASSETS, find_checkpoint
from unmask.spec.recipe import EMBEDDED, ModelSpec

NAME = "embedded-canvas"
DECODE = {"max_new_tokens": 128, "sub_block_size": 8, "threshold": 0.9}
ROWS = 6


@pytest.fixture(scope="module")
def engine() -> unmask.Engine:
    return unmask.load(NAME, "cpu", "float32")


@pytest.fixture(scope="module")
def answers(engine: unmask.Engine) -> dict[str, list[Any]]:
    """The first problems, answered under each cache."""
    prompts = [f"Question: {row['question']}\nAnswer:" for row in problems()]
    return {
        cache: engine.generate(prompts, DECODE | {"cache": cache}) for cache in ("none", "prefix", "dual")
    }


def problems() -> list[dict[str, Any]]:
    lines = (ASSETS / "tasks" / "arith.jsonl").read_text().splitlines()[:ROWS]
    return [json.loads(line) for line in lines]


def forwards(answered: list[Any]) -> Counter[str]:
    """By kind, those that happened."""
    return +sum((Counter(answer.ledger.steps()) for answer in answered), Counter[str]())


def test_both_models_are_found_by_name_and_have_no_revision() -> None:
    assert EMBEDDED == ("embedded", NAME)
    assert read_config(find_checkpoint(NAME)).family.name == "llada"
    assert sum(file.stat().st_size for file in find_checkpoint(NAME).iterdir()) < 10_000_000
    with pytest.raises(UnmaskError, match=f"`{NAME}` is none; leave it out"):
        ModelSpec(checkpoint=NAME, revision="main")


def test_it_uses_the_tokenizer_of_the_first_model() -> None:
    first, second = (find_checkpoint(name) / "tokenizer.json" for name in EMBEDDED)
    assert first.read_bytes() == second.read_bytes()


def test_answers_are_chains_that_end_in_a_number(answers: dict[str, list[Any]]) -> None:
    ends = [re.search(r"#### (\d+)$", answer.text) for answer in answers["dual"]]
    right = [
        end is not None and end[1] == row["answer"].split()[-1]
        for end, row in zip(ends, problems(), strict=True)
    ]
    assert all(ends)
    assert sum(right) >= ROWS // 3


def test_caches_feed_what_they_are_named_for(answers: dict[str, list[Any]], engine: unmask.Engine) -> None:
    counted = {cache: forwards(found) for cache, found in answers.items()}
    assert set(counted["none"]) == {"block"}
    assert set(counted["prefix"]) == {"block", "tail"}
    assert set(counted["dual"]) == {"block", "sub"}
    for cache in ("prefix", "dual"):
        opened = sum(-(-len(answer.ids) // DECODE["sub_block_size"]) for answer in answers[cache])
        assert counted[cache]["block"] == pytest.approx(opened, abs=ROWS)
        assert counted[cache].total() == pytest.approx(counted["none"].total(), rel=0.15)
    tokens = sum(len(answer.ids) for answer in answers["none"])
    assert 1.5 < tokens / counted["none"].total() < 3.5


def test_a_canvas_longer_than_it_was_trained_on_is_refused(engine: unmask.Engine) -> None:
    with pytest.raises(UnmaskError, match="the model has 320; lower max_new_tokens"):
        engine.generate("Question: Tom has 12 pens.\nAnswer:")


def test_the_card_names_the_commands_that_make_it() -> None:
    card = Path(find_checkpoint(NAME) / "README.md").read_text()
    assert "python -m training train RUN --recipe canvas" in card
    assert "python -m training export RUN src/unmask/assets/embedded_canvas --recipe canvas" in card
