"""What the layers of a forward share is made once, kept for the same places, and never stale."""

from weakref import ref

import pytest
import torch

from checkpoints import load_recipe, small_model, small_recipe
from unmask.engine.forward import KEPT_FRAMES, PlannedPart, Workspace
from unmask.engine.step_plan import Op, StepPlan, Unit
from unmask.model.geometry import Segment
from unmask.model.scratch import Scratch

BLOCK = 8


def workspace() -> Workspace:
    return Workspace(small_model().engine.transformer, slots=4, length=4 * BLOCK, block_size=BLOCK)


def block(slot: int, index: int) -> Segment:
    return Segment(slot, range(index * BLOCK, (index + 1) * BLOCK), (index + 1) * BLOCK)


def test_the_next_step_of_the_same_places_takes_the_same_frame() -> None:
    own = workspace()
    with torch.inference_mode():
        _, first = own.open([1] * BLOCK, [block(0, 0)])
        _, again = own.open([2] * BLOCK, [block(0, 0)])
        _, other = own.open([2] * BLOCK, [block(1, 0)])
    assert again is first
    assert other is not first


def test_the_frames_of_a_block_and_its_sub_blocks_are_kept_and_no_more_than_a_few() -> None:
    own = workspace()
    places = [block(0, 0), *(Segment(0, range(start, start + 2), BLOCK) for start in range(0, BLOCK, 2))]
    with torch.inference_mode():
        frames = [own.frame([place]) for place in places]
        assert all(own.frame([place]) is frame for place, frame in zip(places, frames, strict=True))
        for slot in range(4):
            for index in range(4):
                own.frame([block(slot, index)])
        assert own.frame([places[1]]) is not frames[1], "others have been fed since"
        assert len(own._frames) == KEPT_FRAMES


def test_outgrown_buffers_are_let_go() -> None:
    """A frame holds buffers; a larger forward makes larger ones, and the old ones must not stay with the old frames."""
    own = workspace()
    with torch.inference_mode():
        small = ref(own.frame([block(0, 0)]).qkv_TX)
        own.frame([block(slot, 1) for slot in (0, 1, 2)])
        assert small() is None


def test_frames_of_prompts_are_not_kept() -> None:
    own = workspace()
    stairs = [Segment(0, range(BLOCK), BLOCK, stair=4)]
    with torch.inference_mode():
        assert own.frame(stairs) is not own.frame(stairs)


@pytest.mark.parametrize(
    "between", [[block(1, 0)], [block(slot, 1) for slot in (3, 1, 2)]], ids=["one", "many"]
)
def test_forwards_between_do_not_change_what_a_forward_gives(between: list[Segment]) -> None:
    """Larger forwards grow the buffers under a frame; keys may have been renewed since."""
    tokens, segments = [1, 2, 3, 4, 5, 6, 7, 8], [block(0, 0)]
    with torch.inference_mode():
        alone = workspace().forward(tokens, segments).hidden_TD
        own = workspace()
        own.forward([9] * BLOCK, segments)
        own.forward([3] * (BLOCK * len(between)), between)
        assert torch.equal(own.forward(tokens, segments).hidden_TD, alone)
        assert torch.equal(own.forward(tokens, segments).hidden_TD, alone)


def test_results_are_not_overwritten_by_later_forwards() -> None:
    own = workspace()
    with torch.inference_mode():
        first = own.forward([1] * BLOCK, [block(0, 0)]).hidden_TD
        kept = first.clone()
        own.forward([2] * BLOCK, [block(0, 0)])
    assert torch.equal(first, kept)


def test_scratch_keeps_a_buffer_and_grows_it() -> None:
    scratch = Scratch(torch.device("cpu"), torch.float32)
    small = scratch.take("a", 2, 3)
    assert scratch.take("a", 3, 2).data_ptr() == small.data_ptr()
    assert scratch.take("b", 2, 3).data_ptr() != small.data_ptr()
    large = scratch.take("a", 4, 5)
    assert large.shape == (4, 5)
    assert scratch.take("a", 2, 3).data_ptr() == large.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unit", list(Unit), ids=lambda unit: unit.value)
def test_remembering_changes_nothing_to_the_last_bit(unit: Unit, dtype: torch.dtype) -> None:
    """A policy that refreshes everything computes the baseline, rounding included, in every unit."""
    transformer = load_recipe(small_recipe(), dtype).engine.transformer
    refresh = StepPlan((Op.REFRESH,) * len(transformer.layers), unit)
    tokens, segments = [1, 2, 3, 4, 5, 6, 7, 8], [block(0, 0)]
    with torch.inference_mode():
        plain, remembering = (Workspace(transformer, 1, BLOCK, BLOCK) for _ in range(2))
        expected = plain.forward(tokens, segments).hidden_TD
        assert torch.equal(
            remembering.forward(tokens, segments, [PlannedPart(refresh, 1)]).hidden_TD, expected
        )


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_norm_of_layers_is_the_root_mean_square_norm(size: float) -> None:
    own = workspace()
    transformer = own.transformer
    with torch.inference_mode():
        _, frame = own.open([1] * BLOCK, [block(0, 0)])
        x = size * torch.randn(BLOCK, 32, generator=torch.Generator().manual_seed(0))
        weight = transformer.layers[0].mlp_norm_D
        expected = torch.nn.functional.rms_norm(x.double(), (32,), weight.double(), 1e-6)
        found = transformer._norm(x, weight, frame)
    assert torch.allclose(found.double(), expected, rtol=1e-6, atol=0)
