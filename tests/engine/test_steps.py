"""What every step may write, and what the events tell about it."""

from hypothesis import given

from checkpoints import Model
from decoding_cases import models, prompts, specs
from traces import trace
from unmask.engine.events import StepEvent
from unmask.engine.step_plan import FULL, Kind
from unmask.spec import DecodeSpec


@given(models(), prompts(), specs(threshold=1.0))
def test_threshold_one_gives_one_token_a_denoising_step(
    model: Model, prompt: list[int], spec: DecodeSpec
) -> None:
    (found,) = trace(model.engine, [prompt], spec)
    assert all(len(step.writes) == 1 for step in found.steps if step.kind in ("block", "sub"))
    steps = found.answer.ledger.steps()
    assert steps["block"] + steps["sub"] >= 1 or len(found.answer.ids) == 1


@given(models(), prompts(), specs())
def test_events_tell_every_position_once_and_why(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    known, answer, events = dict(enumerate(prompt)), None, []
    for event in model.engine.stream([prompt], spec):
        if not isinstance(event, StepEvent):
            answer = event.generation
            continue
        events.append(event)
        assert not known.keys() & set(event.positions)
        known |= zip(event.positions, event.tokens, strict=True)
        if event.kind in (Kind.BLOCK, Kind.SUB):
            below = [value for value in event.confidences if value <= spec.threshold]
            assert below == [] or below == [max(event.confidences)]
            sub_blocks = {column // spec.sub_block_size for column in event.positions}
            assert len(sub_blocks) == 1
        assert all(0 < value <= 1 for value in event.confidences)
        assert event.plan == FULL
    assert answer is not None
    assert [event.step for event in events] == list(range(len(events)))
    assert [known[len(prompt) + place] for place in range(len(answer.ids))] == answer.ids
    assert model.engine.mask_token not in answer.ids


@given(models(), prompts(), specs())
def test_sub_steps_follow_the_refresh_rule(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    """A sub-block is entered by a full-block step; sub steps come only while its first position is known."""
    assert spec.block_size is not None
    known, fed_block, first_step = set(range(len(prompt))), None, True
    (found,) = trace(model.engine, [prompt], spec)
    for step in found.steps:
        if step.kind in ("block", "sub"):
            column = min(step.writes)
            block, first = column // spec.block_size, column // spec.sub_block_size * spec.sub_block_size
            may_be_sub = spec.cache == "dual" and fed_block == block and first in known
            assert step.kind == ("sub" if may_be_sub else "block"), (first_step, step)
            fed_block, first_step = block, False
        known |= step.writes.keys()


def test_positions_have_their_former_name_for_one_version() -> None:
    event = StepEvent(0, Kind.SUB, FULL, 3, (7, 9), (1, 2), (0.5, 0.6))
    assert event.columns == event.positions == (7, 9)
