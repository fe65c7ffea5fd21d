"""The engine refuses plans that would read what was not computed for these rows in this block."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from policy_cases import LAYERS, PROMPTS, one
from unmask.engine.policy import StepView
from unmask.engine.step_plan import FULL, Kind, Op, RowSelection, StepPlan, Unit
from unmask.errors import UnmaskError

C, R, P = Op.COMPUTE, Op.REFRESH, Op.REPLAY
ALL = {op: (op,) * LAYERS for op in Op}


class Planted:
    """Answers with what a function says."""

    def __init__(self, answer: Callable[[StepView], object]) -> None:
        self.answer = answer

    def plan(self, view: StepView) -> object:
        return self.answer(view)


def refusal(answer: Callable[[StepView], object]) -> str:
    with pytest.raises(UnmaskError) as caught:
        one(PROMPTS[1], Planted(answer))
    sentence = str(caught.value)
    assert sentence.endswith(".")
    return sentence


def needed(view: StepView) -> tuple[int, ...]:
    masked = {position - 1 for position in view.masked if position in view.sub_block}
    return tuple(sorted({*view.sub_block, *view.changed, *masked}))


def others(view: StepView) -> tuple[int, ...]:
    return tuple(position for position in range(view.block_size) if position not in needed(view))


@pytest.mark.parametrize("unit", Unit)
def test_replay_at_the_first_step_of_the_first_block(unit: Unit) -> None:
    assert "not refreshed in this block" in refusal(lambda _: StepPlan(ALL[P], unit))


@pytest.mark.parametrize("unit", Unit)
def test_replay_at_the_first_step_of_a_later_block(unit: Unit) -> None:
    """What was refreshed in the block before does not count."""
    blocks = []

    def answer(view: StepView) -> StepPlan:
        blocks.append(view.block)
        return StepPlan(ALL[P if view.block and not view.step else R], unit)

    assert "not refreshed in this block" in refusal(answer)
    assert max(blocks) == 1


@pytest.mark.parametrize("unit", Unit)
def test_refresh_on_a_sub_block_then_replay_on_the_whole_block(unit: Unit) -> None:
    refreshed = []

    def answer(view: StepView) -> StepPlan:
        if view.kind is Kind.SUB:
            refreshed.append(view.sub_block)
            return StepPlan(ALL[R], unit)
        return StepPlan(ALL[P], unit) if refreshed else FULL

    assert "not refreshed" in refusal(answer)
    assert refreshed


@pytest.mark.parametrize("unit", Unit)
def test_refresh_of_some_rows_then_replay_of_others(unit: Unit) -> None:
    def answer(view: StepView) -> StepPlan:
        if view.step == 0:
            return FULL
        if view.step == 1:
            return StepPlan(ALL[R], unit, rows=RowSelection(needed(view)))
        return StepPlan(ALL[P], unit)

    with pytest.raises(UnmaskError, match="not refreshed"):
        one(PROMPTS[1], Planted(answer), cache="none")


@pytest.mark.parametrize(
    ("refreshed", "replayed"),
    [
        ((C, R, R, R, C, C), (C, C, P, P, P, C)),
        ((C, R, R, R, C, C), (C, R, P, P, C, C)),
        ((R, R, C, C, R, R), ALL[P]),
    ],
)
def test_a_span_with_other_boundaries(refreshed: tuple[Op, ...], replayed: tuple[Op, ...]) -> None:
    assert "not refreshed" in refusal(lambda view: StepPlan(replayed if view.step else refreshed))


def test_layers_refreshed_one_by_one_are_no_span_and_the_reverse() -> None:
    assert "not refreshed" in refusal(
        lambda view: StepPlan(ALL[P if view.step else R], merge=bool(view.step))
    )
    assert "not refreshed" in refusal(lambda view: StepPlan(ALL[P if view.step else R], merge=not view.step))


def test_another_unit_than_was_refreshed() -> None:
    plans = {0: StepPlan(ALL[R], Unit.ATTENTION), 1: StepPlan(ALL[P], Unit.MLP)}
    assert "the mlp of layers 0 to 0" in refusal(lambda view: plans[view.step])


@pytest.mark.parametrize("count", [1, LAYERS - 1, LAYERS + 1])
def test_a_wrong_number_of_operations(count: int) -> None:
    assert refusal(lambda _: StepPlan((C,) * count)) == (
        f"The policy planned {count} layers but the model has {LAYERS}."
    )


def test_rows_without_a_predecessor_whose_logits_are_read() -> None:
    def answer(view: StepView) -> StepPlan:
        if view.kind is Kind.BLOCK and view.step:
            return StepPlan(rows=RowSelection(tuple(view.sub_block)))
        return FULL

    assert "keep the offsets of view.read" in refusal(answer)


def test_what_the_view_says_is_read_is_enough() -> None:
    """A plan of the sub-block, the changed rows and `view.read` leaves nothing out that is needed."""
    views: list[StepView] = []

    def answer(view: StepView) -> StepPlan:
        views.append(view)
        if view.kind is Kind.BLOCK and view.step:
            return StepPlan(rows=RowSelection(tuple(sorted({*view.sub_block, *view.changed, *view.read}))))
        return FULL

    assert one(PROMPTS[1], Planted(answer)).generation.ids
    assert any(set(view.read) - set(view.sub_block) for view in views), "a row before the sub-block is read"
    for view in views:
        assert view.fed == (view.sub_block if view.kind is Kind.SUB else range(view.block_size))


def test_rows_left_out_at_a_first_step() -> None:
    assert "no keys yet" in refusal(lambda view: StepPlan(rows=RowSelection(needed(view))))


@pytest.mark.parametrize("extra", [(-1,), (16,), (200,), (0, 0)], ids=str)
def test_rows_outside_the_step_or_twice(extra: tuple[int, ...]) -> None:
    assert "do not fit the step" in refusal(lambda _: StepPlan(rows=RowSelection((*range(16), *extra))))


def test_rows_outside_a_sub_block() -> None:
    def answer(view: StepView) -> StepPlan:
        return StepPlan(rows=RowSelection(tuple(range(view.block_size))))

    assert "do not fit the step" in refusal(answer)


def test_rows_that_run_and_compete() -> None:
    def answer(view: StepView) -> StepPlan:
        every = tuple(range(view.block_size))
        return StepPlan(rows=RowSelection(every, every[:3], 1, probe_layer=1))

    assert "do not fit the step" in refusal(answer)


def probed(view: StepView, **changes: object) -> StepPlan:
    """A plan as it is allowed: whole at first, later a choice among rows that were probed."""
    if view.kind is Kind.SUB:
        return StepPlan(rows=RowSelection(tuple(view.sub_block), probe_layer=2))
    if view.block_steps == 0:
        return StepPlan(rows=RowSelection(tuple(range(view.block_size)), probe_layer=2))
    rows = RowSelection(needed(view), others(view), min(2, len(others(view))), probe_layer=2)
    return StepPlan(rows=replace(rows, **changes))


def test_the_plan_that_the_following_tests_spoil_is_allowed() -> None:
    assert one(PROMPTS[1], Planted(probed)).generation.ledger.reuse_fraction() > 0


@pytest.mark.parametrize("count", [17, -1])
def test_more_rows_than_compete_or_fewer_than_none(count: int) -> None:
    assert f"asks for {count} of" in refusal(lambda view: probed(view, count=count))


def test_a_choice_without_probe_layer() -> None:
    assert "must name a probe layer" in refusal(lambda view: probed(view, probe_layer=None))


def test_a_choice_among_rows_that_were_not_probed() -> None:
    assert "input to layer 3 was not remembered" in refusal(lambda view: probed(view, probe_layer=3))


@pytest.mark.parametrize("layer", [0, LAYERS, -1])
def test_a_probe_layer_out_of_range(layer: int) -> None:
    def answer(view: StepView) -> StepPlan:
        return StepPlan(rows=RowSelection(tuple(range(view.block_size)), probe_layer=layer))

    assert refusal(answer) == f"The probe layer is {layer}; it must lie between 1 and {LAYERS - 1}."


def test_reuse_below_the_probe_layer() -> None:
    assert "below the probe layer" in refusal(lambda view: replace(probed(view), ops=(C, R, C, C, C, C)))


def test_drift_that_cannot_be_measured() -> None:
    assert "layer by layer" in refusal(lambda _: StepPlan(drift=True))
    assert "layer by layer" in refusal(lambda _: StepPlan(ALL[R], drift=True))
    plan = StepPlan(ALL[C], merge=False, drift=True)
    assert "cannot measure drift as well" in refusal(lambda view: replace(plan, rows=probed(view).rows))


def test_an_answer_that_is_no_plan() -> None:
    assert refusal(lambda _: None) == "The policy answered with NoneType; plan(view) must return a StepPlan."


def test_drift_is_told_only_where_there_was_something_to_compare_with() -> None:
    """A policy that starts to measure late must not be told a comparison with another request's rows."""
    drifts = []

    def answer(view: StepView) -> StepPlan:
        drifts.append((view.step, view.drift))
        return StepPlan(ALL[R], merge=False, drift=view.step >= 2)

    one(PROMPTS[1], Planted(answer), cache="none")
    assert any(drift for _, drift in drifts)
    assert all((len(drift) == LAYERS) == (step >= 4) for step, drift in drifts)
    assert all(0 < value < 5 for _, drift in drifts for value in drift)


def test_computing_layers_can_be_measured_too() -> None:
    drifts = []

    def answer(view: StepView) -> StepPlan:
        drifts.append(view.drift)
        return StepPlan(ALL[C], merge=False, drift=True)

    found, baseline = one(PROMPTS[1], Planted(answer)), one(PROMPTS[1])
    assert found.generation.ids == baseline.generation.ids
    assert found.generation.ledger == baseline.generation.ledger
    assert {len(drift) for drift in drifts} == {0, LAYERS}


def test_ages_count_the_steps_since_a_refresh() -> None:
    """Computing refreshes nothing, and of two features that a layer has the older counts."""
    ages = {}

    def answer(view: StepView) -> StepPlan:
        if view.block == 0:
            ages[view.step] = view.ages
        layers = (C, R, R, C, C, C)
        plans = {
            0: FULL,
            1: StepPlan(layers, Unit.OUTPUT),
            2: StepPlan((C, P, C, C, C, C), Unit.OUTPUT),
            3: StepPlan(layers, Unit.MLP),
            4: StepPlan((C, P, P, C, C, C), Unit.MLP),
            5: StepPlan((C, P, P, C, C, C), Unit.MLP),
        }
        return plans.get(view.step, FULL)

    one(PROMPTS[1], Planted(answer), cache="none", threshold=1.0)
    assert ages[0] == ages[1] == (None,) * LAYERS
    assert [ages[step] for step in (2, 3)] == [(0,) * LAYERS, (1,) * LAYERS]
    assert [ages[step] for step in (4, 5, 6, 7)] == [(age,) * LAYERS for age in (2, 3, 4, 5)]
