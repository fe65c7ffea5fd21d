"""Where an answer ends, and that ending it changes nothing before the end."""

import itertools
from typing import Any, cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from checkpoints import MASK, Model, engine_of, small_model
from decoding_cases import models, prompts, specs
from traces import trace
from unmask.engine.engine import Engine
from unmask.engine.prompt import Request
from unmask.engine.sequence import SequenceState
from unmask.engine.stopping import StopStrings
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


class Growing:
    """An answer that grows as a sequence's does."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.known = 0
        self.length: int | None = None

    @property
    def answer(self) -> list[int]:
        return self.ids[: self.known]

    def cut(self, length: int, reason: str) -> None:
        assert reason == "stop_string"
        self.length = length

    def grown(self, stops: StopStrings, steps: list[int]) -> int | None:
        """Its length when stop strings have ended it."""
        for step in itertools.cycle(steps):
            if self.length is not None or self.known == len(self.ids):
                return self.length
            self.known = min(self.known + step, len(self.ids))
            stops(cast("SequenceState", self))
        return None


def test_long_answers_are_not_decoded_whole_at_each_step() -> None:
    decoded = []

    def decode(ids: list[int]) -> str:
        decoded.append(len(ids))
        return "ab" * len(ids)

    assert Growing([1] * 2000).grown(StopStrings(["none such"], decode), [1]) is None
    assert sum(decoded) < 60 * 2000, "a bounded number for each step; whole answers are 1000 on average"


PIECES = ["", " a", "a", "b\n", "\n", " ", *[bytes([byte]) for byte in "é\n😀".encode()]]
"""A special token, words, and bytes, as tokenizers have them for characters they do not know."""


def awkward(ids: list[int]) -> str:
    """Bytes in a row are characters or, if any is broken, all are replaced; the first space is left out."""
    text = ""
    for are_bytes, run in itertools.groupby(
        (PIECES[number] for number in ids), lambda each: type(each) is bytes
    ):
        pieces = list(run)
        if are_bytes:
            try:
                text += b"".join(cast("list[bytes]", pieces)).decode()
            except UnicodeDecodeError:
                text += "\N{REPLACEMENT CHARACTER}" * len(pieces)
        else:
            text += "".join(cast("list[str]", pieces))
    return text.removeprefix(" ")


@given(
    st.lists(st.integers(0, len(PIECES) - 1), max_size=12).flatmap(
        lambda period: st.lists(st.sampled_from([period, [1], [6, 7], [9, 10, 11, 12], [8]]), max_size=60)
    ),
    st.lists(st.sampled_from(["a\n", "\n\n", "é\n", "😀b", " a a  a", "bb"]), min_size=1, max_size=2),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
@example(parts=[[6, 7]] * 18 + [[8, 8]], strings=["é\n\n"], steps=[2])
@example(parts=[[2]] * 30 + [[3]] + [[0]] * 60 + [[4]], strings=["\n\n"], steps=[1])
def test_the_end_of_an_answer_tells_as_much_as_the_whole(
    parts: list[list[int]], strings: list[str], steps: list[int]
) -> None:
    ids = [number for part in parts for number in part]
    expected, known = None, 0
    for step in itertools.cycle(steps):
        if expected is not None or known == len(ids):
            break
        known = min(known + step, len(ids))
        if any(string in awkward(ids[:known]) for string in strings):
            expected = next(
                length for length in range(1, known + 1) if any(s in awkward(ids[:length]) for s in strings)
            )
    assert Growing(ids).grown(StopStrings(strings, awkward), steps) == expected
