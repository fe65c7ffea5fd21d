"""Decodings side by side: what is told of them is what the engine did, whoever else decodes meanwhile."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import unmask
from unmask.play.presets import PRESETS, questions
from unmask.play.session import Loading, Session
from unmask.play.settings import FieldsRefused, Question

PROMPT = str(questions()[0]["prompt"])
QUESTION = Question(PROMPT, chat=False, max_new_tokens="32")


def told(session: Session, *sides: Mapping[str, str], question: Question = QUESTION) -> list[dict[str, Any]]:
    return list(session.race(question, list(sides)))


def of(events: Iterable[dict[str, Any]], kind: str, side: int) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind and event["side"] == side]


def without_times(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != "at"} for event in events]


def test_steps_and_counts_are_those_of_the_engine(session: Session) -> None:
    events = told(session, {"threshold": "0.7"}, {"policy": "trim:keep=0"})
    engine = unmask.load("embedded")
    settings = ({"threshold": 0.7}, None), ({}, {"kind": "trim", "keep": 0.0})
    for side, (decode, policy) in enumerate(settings):
        (answer,) = engine.generate(PROMPT, {"max_new_tokens": 32, **decode}, policy)
        (whole,) = of(events, "answer", side)
        steps = of(events, "step", side)
        assert whole["text"] == answer.text
        assert sum(sum(step["done"]) for step in steps) == answer.ledger.branch_rows() == whole["branch_rows"]
        assert sum(step["forwards"] for step in steps) == sum(answer.ledger.steps().values())
        assert (answer.ledger.reuse_fraction() > 0) == (side == 1)
    assert events[-1] == {"event": "end"}


def test_the_side_that_is_behind_goes_next(session: Session) -> None:
    clocks = [0.0, 0.0]
    events = [event for event in told(session, {}, {"rule": "top_n:n=1"}) if event["event"] == "step"]
    ends = {
        side: max(number for number, event in enumerate(events) if event["side"] == side) for side in (0, 1)
    }
    for number, event in enumerate(events):
        both_run = all(number < end for end in ends.values())
        assert not both_run or clocks[event["side"]] == min(clocks)
        clocks[event["side"]] = event["at"]


def test_decodings_at_once_are_those_alone(session: Session) -> None:
    pairs = [(preset.a, preset.b) for preset in PRESETS[:3]]
    alone = [told(session, *pair) for pair in pairs]
    together: dict[int, list[dict[str, Any]]] = {}

    def decode(number: int) -> None:
        together[number] = told(session, *pairs[number])

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        for side in (0, 1):
            for kind in ("step", "answer"):
                expected = without_times(of(alone[number], kind, side))
                assert without_times(of(together[number], kind, side)) == expected
    assert session.under_way == 0


@pytest.mark.parametrize(
    ("words", "field", "sentence"),
    [
        ({"policy": "trim:keep=2"}, "B.policy", "keep is 2.0; it must lie in [0, 1]"),
        ({"policy": "layer_reuse:k=2,layers=99"}, "B.policy", "this model has layers 0 to 11"),
        ({"threshold": "high"}, "B.threshold", "threshold is 'high'; it must be a number."),
        ({"threshold": "0.5", "rule": "factor"}, "B.rule", "leave one out"),
        ({"cache": "prefix"}, "B.cache", "cannot use the cache prefix"),
        ({"model": "/no/such/folder"}, "B.model", "no such folder"),
        ({"model": "nobody/nothing"}, "B.model", "`unmask play --model nobody/nothing` fetches it"),
        ({"sub_block_size": "5"}, "B.sub_block_size", "choose a sub-block that divides the block"),
    ],
)
def test_a_bad_setting_has_one_sentence_at_its_field(
    session: Session, words: dict[str, str], field: str, sentence: str
) -> None:
    with pytest.raises(FieldsRefused) as refused:
        session.race(QUESTION, [{}, words])
    assert list(refused.value.sentences) == [field]
    assert sentence in refused.value.sentences[field]


def test_what_both_sides_share_is_said_once(session: Session) -> None:
    with pytest.raises(FieldsRefused) as refused:
        session.check(Question("", chat=False, max_new_tokens="none"), [{}, {}])
    assert list(refused.value.sentences) == ["max_new_tokens", "prompt"]


def test_a_side_that_fails_says_why_and_the_other_goes_on(session: Session) -> None:
    broken = '{"kind": "custom", "target": "json:JSONDecoder"}'
    with pytest.raises(FieldsRefused) as refused:
        session.check(QUESTION, [{}, {"policy": broken}])
    assert "json:JSONDecoder" in refused.value.sentences["B.policy"]
    failing = '{"kind": "custom", "target": "failing_policy:Failing"}'
    events = told(session, {}, {"policy": failing})
    (failed,) = of(events, "failed", 1)
    assert "failing_policy" in failed["sentence"]
    assert of(events, "answer", 0)
    assert not of(events, "answer", 1)


def test_closing_the_events_ends_the_decoding(session: Session) -> None:
    events = session.race(QUESTION, [{}, {}])
    assert next(event for event in events if event["event"] == "step")
    assert session.under_way == 1
    events.close()  # type: ignore[attr-defined]
    assert session.under_way == 0


def test_presets_can_be_honoured_and_questions_have_their_result() -> None:
    session = Session(Loading("embedded", lambda *_: pytest.fail("weights were loaded")))
    for question in questions():
        assert question["target"].lstrip("-").isdigit()
        for preset in PRESETS:
            session.check(
                Question(question["prompt"], chat=False, max_new_tokens="128"), [preset.a, preset.b]
            )
