"""A request gives the same tokens and the same ledger alone, in any batch and in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import Model, small_model
from decoding_cases import models, requests, specs
from traces import same_but_for_rounding, settings_of, trace
from unmask.engine.events import Finished, collect
from unmask.engine.prompt import Request
from unmask.spec import DecodeSpec


@settings(max_examples=15)
@given(models(), st.lists(requests(), min_size=2, max_size=5), specs(), st.data())
def test_a_batch_equals_its_rows_alone(
    model: Model, rows: list[Request], spec: DecodeSpec, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))), label="order")
    batch_size = data.draw(st.integers(1, len(rows)), label="batch size")
    together = trace(model.engine, [rows[index] for index in order], spec, batch_size)
    for index, found in zip(order, together, strict=True):
        request = rows[index]
        (alone,) = trace(model.engine, [request], spec)
        own = settings_of(spec, 32, max_new_tokens=request.max_new_tokens)
        if same_but_for_rounding(model.oracle, request.prompt, own, alone.steps, found.steps):
            assert found.answer.ids == alone.answer.ids
            assert found.answer.finish_reason == alone.answer.finish_reason
            assert found.answer.ledger == alone.answer.ledger


def test_answers_come_in_the_order_of_the_prompts_although_rows_finish_in_another() -> None:
    engine = small_model().engine
    rows = [Request([1, 2, 3], 30), Request([4, 5], 1), Request([6], 10), Request([7] * 40, 2)]
    answers = engine.generate(rows, {"stop_tokens": ()}, batch_size=2)
    assert [len(answer.ids) for answer in answers] == [30, 1, 10, 2]
    for row, answer in zip(rows, answers, strict=True):
        assert engine.generate([row], {"stop_tokens": ()})[0].ids == answer.ids


def test_a_finished_row_leaves_at_once_and_its_place_is_taken() -> None:
    engine = small_model().engine
    rows = [Request([1, 2, 3], 40), Request([4, 5], 1), Request([6], 1), Request([7], 1)]
    events = list(engine.stream(rows, {"stop_tokens": (), "threshold": 1.0}, batch_size=2))
    finished = [event for event in events if isinstance(event, Finished)]
    assert [event.request for event in finished] == [1, 2, 3, 0]
    assert collect(events) == [finished[place].generation for place in (3, 0, 1, 2)], "in the requests' order"
