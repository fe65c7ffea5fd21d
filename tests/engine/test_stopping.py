"""Where an answer ends, and that ending it changes nothing before the end."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from checkpoints import MASK, Model, engine_of, small_model
from decoding_cases import models, prompts, specs
from traces import trace
from unmask.engine.engine import Engine
from unmask.engine.prompt import Request
from unmask.spec import DecodeSpec


def changed(spec: DecodeSpec, **changes: Any) -> DecodeSpec:
    return DecodeSpec(**({name: getattr(spec, name) for name in spec.__struct_fields__} | changes))


@given(models(), prompts(), specs(stops=False), st.data())
def test_stopping_early_changes_nothing_before_the_stop(
    model: Model, prompt: list[int], spec: DecodeSpec, data: st.DataObject
) -> None:
    (whole,) = trace(model.engine, [prompt], spec)
    stop = data.draw(st.sampled_from(whole.answer.ids), label="stop token")
    (stopped,) = trace(model.engine, [prompt], changed(spec, stop_tokens=(stop,)))
    assert stopped.answer.ids == whole.answer.ids[: whole.answer.ids.index(stop) + 1]
    assert stopped.answer.finish_reason == "stop"
    assert stopped.steps == whole.steps[: len(stopped.steps)]


@given(models(), prompts(), specs(), st.data())
def test_a_smaller_limit_gives_the_beginning(
    model: Model, prompt: list[int], spec: DecodeSpec, data: st.DataObject
) -> None:
    (whole,) = trace(model.engine, [prompt], spec)
    limit = data.draw(st.integers(1, spec.max_new_tokens), label="limit")
    (short,) = trace(model.engine, [prompt], changed(spec, max_new_tokens=limit))
    assert short.answer.ids == whole.answer.ids[:limit]
    assert short.steps == whole.steps[: len(short.steps)]
    ends_by_limit = len(whole.answer.ids) > limit
    assert short.answer.finish_reason == ("length" if ends_by_limit else whole.answer.finish_reason)


def test_a_limit_is_met_exactly_at_every_length() -> None:
    engine = small_model().engine
    lengths = range(1, 70)
    answers = engine.generate([Request([1] * 5, length) for length in lengths], {"stop_tokens": ()})
    assert [len(answer.ids) for answer in answers] == list(lengths)
    assert {answer.finish_reason for answer in answers} == {"length"}


def test_a_row_ends_before_the_rest_of_its_block_is_denoised() -> None:
    engine = small_model().engine
    answer = engine.generate([[1, 2, 3]], {"max_new_tokens": 1, "threshold": 1.0, "stop_tokens": ()})[0]
    steps = answer.ledger.steps()
    assert steps["commit"] == 0
    assert steps["block"] + steps["sub"] <= 5


@pytest.mark.parametrize(
    "prompt_length, source",
    [(32, "prefill"), (64, "prefill"), (30, "commit"), (50, "commit"), (3, "denoise")],
)
def test_a_stop_token_ends_the_row_wherever_it_comes_from(prompt_length: int, source: str) -> None:
    for seed in range(40):
        engine = small_model(seed=seed % 4).engine
        prompt = [(seed * 7 + place * 5) % MASK for place in range(prompt_length)]
        spec = DecodeSpec(max_new_tokens=40, stop_tokens=())
        (whole,) = trace(engine, [prompt], spec)
        wanted = {"prefill": ("prefill",), "commit": ("commit",), "denoise": ("block", "sub")}[source]
        column = next(min(s.writes) for s in whole.steps if s.kind in wanted and s.writes)
        ids, place = whole.answer.ids, column - prompt_length
        if ids.index(ids[place]) == place:  # the token must not come up earlier, or that would stop the row
            break
    else:
        pytest.fail(f"no prompt of length {prompt_length} gets a new token from a {source} step")

    (stopped,) = trace(engine, [prompt], changed(spec, stop_tokens=(ids[place],)))

    assert stopped.answer.ids == ids[: place + 1]
    assert stopped.answer.finish_reason == "stop"
    assert stopped.steps[-1].kind in wanted


def test_several_rows_stop_in_different_blocks() -> None:
    engine = small_model(seed=1).engine
    rows = [[row * 3 + 1] * (5 + 9 * row) for row in range(6)]
    free = DecodeSpec(max_new_tokens=80, stop_tokens=())
    whole = [answer.ids for answer in engine.generate(rows, free)]
    stops = {whole[0][70], whole[3][2], whole[5][40]}
    answers = engine.generate(rows, changed(free, stop_tokens=tuple(stops)), batch_size=4)
    for ids, answer in zip(whole, answers, strict=True):
        ends = [place for place, token in enumerate(ids) if token in stops]
        assert answer.ids == (ids[: ends[0] + 1] if ends else ids)
        assert answer.finish_reason == ("stop" if ends else "length")
    assert len({len(answer.ids) for answer in answers}) > 2


def test_stop_tokens_come_from_the_checkpoint_unless_given() -> None:
    free = small_model(seed=1).engine
    ids = free.generate([[1, 2, 3]], {"max_new_tokens": 40, "stop_tokens": ()})[0].ids
    stopping = small_model(seed=1, eos_token_id=ids[20]).engine
    by_checkpoint = stopping.generate([[1, 2, 3]], {"max_new_tokens": 40})[0]
    assert by_checkpoint.ids == ids[: ids.index(ids[20]) + 1]
    assert by_checkpoint.finish_reason == "stop"
    assert stopping.generate([[1, 2, 3]], {"max_new_tokens": 40, "stop_tokens": ()})[0].ids == ids


class Spelling(Engine):
    """Writes token t as the letter number t, so that tests can read answers."""

    @property
    def has_tokenizer(self) -> bool:
        return True

    def decode_text(self, ids: list[int]) -> str:
        return "".join(chr(ord("A") + token) for token in ids)


@given(models(), prompts(), specs(), st.data())
def test_a_stop_string_cuts_the_text(
    model: Model, prompt: list[int], spec: DecodeSpec, data: st.DataObject
) -> None:
    engine = engine_of(Spelling, model.engine)
    (whole,) = trace(engine, [prompt], spec)
    kept = len(whole.answer.ids) - (whole.answer.finish_reason == "stop")
    assume(kept > 0)
    first = data.draw(st.integers(0, kept - 1), label="first")
    last = data.draw(st.integers(first, min(kept - 1, first + 3)), label="last")
    text = engine.decode_text(whole.answer.ids[:kept])
    assert whole.answer.text == text
    string = text[first : last + 1]
    (cut,) = trace(engine, [prompt], changed(spec, stop_strings=("none such", string)))
    assert cut.answer.text == text[: text.index(string)]
    assert cut.answer.ids == whole.answer.ids[: text.index(string) + len(string)]
    assert cut.answer.finish_reason == "stop_string"
    assert cut.steps == whole.steps[: len(cut.steps)]


def test_the_text_leaves_out_the_stop_token() -> None:
    engine = engine_of(Spelling, small_model(seed=1).engine)
    ids = engine.generate([[1, 2, 3]], {"max_new_tokens": 30, "stop_tokens": ()})[0].ids
    answer = engine.generate([[1, 2, 3]], {"max_new_tokens": 30, "stop_tokens": (ids[9],)})[0]
    assert answer.finish_reason == "stop"
    assert answer.text == engine.decode_text(answer.ids[:-1])


def test_the_earliest_of_several_stop_strings_cuts() -> None:
    engine = engine_of(Spelling, small_model(seed=1).engine)
    free = {"max_new_tokens": 30, "stop_tokens": ()}
    text = engine.generate([[1, 2, 3]], free)[0].text
    assert text is not None
    late, early = text[20:23], text[8:10]
    answer = engine.generate([[1, 2, 3]], free | {"stop_strings": (late, early)})[0]
    assert answer.text == text[: min(text.index(late), text.index(early))]
