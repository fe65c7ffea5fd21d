"""Input that cannot be decoded is refused in one sentence."""

from typing import Any

import pytest

from checkpoints import MASK, VOCABULARY, small_model
from unmask.engine.prompt import Request, as_requests
from unmask.errors import UnmaskError


def refused(prompts: Any, settings: dict[str, Any] | None = None, **named: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        small_model(max_position_embeddings=100).engine.generate(prompts, settings or {}, **named)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_an_empty_prompt() -> None:
    assert "empty" in refused([[]])
    assert "empty" in refused(Request([]))


def test_a_prompt_longer_than_the_context() -> None:
    for length in (100, 101):
        sentence = refused([[1] * length])
        assert str(length) in sentence
        assert "context is 100" in sentence


def test_the_longest_prompt_that_fits_gets_one_token() -> None:
    answer = small_model(max_position_embeddings=100).engine.generate([[1] * 99], {"stop_tokens": ()})[0]
    assert len(answer.ids) == 1
    assert answer.finish_reason == "context"


def test_an_answer_ends_with_the_context() -> None:
    engine = small_model(max_position_embeddings=100).engine
    answer = engine.generate([[1] * 60], {"stop_tokens": (), "max_new_tokens": 41})[0]
    assert (len(answer.ids), answer.finish_reason) == (40, "context")
    answer = engine.generate([[1] * 60], {"stop_tokens": (), "max_new_tokens": 40})[0]
    assert (len(answer.ids), answer.finish_reason) == (40, "length")


def test_a_request_that_got_all_it_asked_for_ended_by_length() -> None:
    """Its own limit decides, not the limit of the decode settings."""
    engine = small_model(max_position_embeddings=100).engine
    full = engine.generate([Request([1] * 60, 40)], {"stop_tokens": (), "max_new_tokens": 90})[0]
    assert (len(full.ids), full.finish_reason) == (40, "length")
    cut = engine.generate([Request([1] * 60, 90)], {"stop_tokens": (), "max_new_tokens": 5})[0]
    assert (len(cut.ids), cut.finish_reason) == (40, "context")


@pytest.mark.parametrize("token", [VOCABULARY, -1, 10**12])
def test_a_token_outside_the_vocabulary(token: int) -> None:
    sentence = refused([[1, token, 2]])
    assert f"Token id {token} " in sentence
    assert f"vocabulary of {VOCABULARY}" in sentence


@pytest.mark.parametrize("prompt", [[MASK], [1, 2, MASK], [MASK, 1, 2], [1] * 32 + [MASK]])
def test_the_mask_token_in_a_prompt(prompt: list[int]) -> None:
    """It would be taken for a position still to be decoded and written over."""
    assert "mask" in refused([prompt]).lower()


def test_a_mixture_that_is_no_prompt() -> None:
    assert "list of token ids" in refused([["a", 1]])


def test_text_without_a_tokenizer() -> None:
    assert "token ids" in refused("some text")


@pytest.mark.parametrize(
    "settings, part",
    [
        ({"sub_block_size": 5}, "32 is not a multiple of sub_block_size 5"),
        ({"block_size": 12}, "12 is not a multiple of sub_block_size 8"),
        ({"threshold": 0}, "threshold is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"thresold": 0.5}, "Allowed fields: max_new_tokens, threshold"),
    ],
)
def test_settings_that_no_decoding_could_honour(settings: dict[str, Any], part: str) -> None:
    assert part in refused([[1]], settings)


def test_a_batch_of_none() -> None:
    assert "batch_size is 0" in refused([[1]], batch_size=0)


def test_a_request_for_no_tokens() -> None:
    assert "max_new_tokens is 0" in refused(Request([1], 0))


def test_a_checkpoint_without_block_size_needs_one() -> None:
    engine = small_model(bd_size=None).engine
    with pytest.raises(UnmaskError, match="block_size"):
        engine.generate([[1]])
    assert len(engine.generate([[1]], {"block_size": 16, "max_new_tokens": 3, "stop_tokens": ()})[0].ids) == 3


def test_all_are_refused_before_anything_is_decoded() -> None:
    engine = small_model().engine
    with pytest.raises(UnmaskError):
        next(engine.stream([[1, 2], [VOCABULARY]]))


def test_one_prompt_or_many() -> None:
    chat = [{"role": "user", "content": "hi"}]
    assert as_requests("text") == [Request("text")]
    assert as_requests([1, 2]) == [Request([1, 2])]
    assert as_requests(chat) == [Request(chat)]
    assert as_requests(Request([1])) == [Request([1])]
    assert as_requests([[1, 2], "text", chat, Request([3], 4)]) == [
        Request([1, 2]),
        Request("text"),
        Request(chat),
        Request([3], 4),
    ]
    assert small_model().engine.generate([]) == []
