"""Canvases: their lengths, the states on them, who sees whom, and decoding, against definitions written out by hand."""

import dataclasses
import random

import pytest
import torch

from training.batches import BatchConfig, batches, canvas_batch
from training.canvas import CanvasConfig, CanvasLayout, canvas_layout, draw_canvas_state, lay_out
from training.canvas_decoding import decode_canvas
from training.curriculum.drills import draw_equation_drill
from training.curriculum.rows import Row
from training.encoding import Encoded, Encoder
from training.network import Network, NetworkConfig
from training.vocabulary import build_tokenizer

FILL, MASK, STOP = 0, 3, 2


def example(given: int, length: int) -> Encoded:
    learned = (False,) * given + (True,) * (length - given)
    ids = (*range(100, 100 + length - 1), STOP)
    late = tuple(position % 3 == 0 for position in range(length))
    return Encoded(ids=ids, learned=learned, given=given, drill=False, late=late)


@pytest.fixture(scope="module")
def network() -> Network:
    small = Network(NetworkConfig(vocabulary=300, layers=2, hidden=32, heads=4, kv_heads=2, feed_forward=48))
    small.initialise(1)
    with torch.no_grad():
        for name, parameter in small.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.copy_(
                    torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.3
                )
    return small


@pytest.mark.parametrize("reply", [2, 9, 32, 33, 96, 161])
def test_a_canvas_holds_the_reply_and_is_filled_up_or_ends_with_it(reply: int) -> None:
    config, rng, sample = CanvasConfig(), random.Random(1), example(20, 20 + reply)
    lengths = set()
    for _ in range(300):
        canvas = lay_out(sample, config, FILL, rng)
        columns = len(canvas.ids) - 20
        lengths.add(columns)
        assert len(canvas.learned) == len(canvas.late) == len(canvas.ids)
        if columns == reply - 1:
            assert canvas.ids == sample.ids[:-1]
        else:
            assert columns % config.step == 0
            assert canvas.ids == sample.ids + (FILL,) * (columns - reply)
            assert all(canvas.learned[20:])
    assert (reply - 1 in lengths) == (reply <= config.short)
    assert max(lengths) == max(config.longest, -(-reply // 8) * 8)
    assert min(lengths - {reply - 1}) == -(-reply // 8) * 8


def test_aligned_states_are_those_of_decoding_sub_blocks_from_the_end_of_the_prompt() -> None:
    config = CanvasConfig(aligned=1.0, sub_blocks=(8,))
    rng, canvas = random.Random(2), lay_out(example(13, 60), CanvasConfig(longest=64), FILL, random.Random(5))
    seen = set()
    for _ in range(300):
        state = draw_canvas_state(canvas, config, FILL, rng)
        first = min(state)
        sub = (first - 13) // 8
        seen.add(sub)
        high = min(13 + (sub + 1) * 8, len(canvas.ids))
        assert set(range(high, len(canvas.ids))) <= set(state)
        assert all(p in state for p in range(first + 1, high) if canvas.late[p])
        for position, weight in state.items():
            expected = 1.0 if position < high else config.later_weight
            if canvas.ids[position] == FILL:
                expected *= config.fill_weight
            assert weight == pytest.approx(expected)
    assert seen == set(range(6))


def test_random_states_count_as_much_as_a_sub_block_whatever_their_share() -> None:
    config = CanvasConfig(aligned=0.0, sub_blocks=(16,), fill_weight=1.0)
    canvas, rng = example(10, 90), random.Random(3)
    states = [draw_canvas_state(canvas, config, FILL, rng) for _ in range(3000)]
    assert all(10 <= position < 90 for state in states for position in state)
    assert sum(sum(state.values()) for state in states) / len(states) == pytest.approx(16, rel=0.03)
    sizes = [len(state) for state in states]
    assert min(sizes) < 8
    assert max(sizes) == 80


def test_a_drill_masks_whole_results_and_nothing_else() -> None:
    encoder, rng = Encoder(build_tokenizer()), random.Random(4)
    for _ in range(50):
        drill = encoder.encode(
            Row(kind="equation_drill", prompt="", reply=tuple(draw_equation_drill(rng, 99)))
        )
        canvas = lay_out(drill, CanvasConfig(), encoder.pad, rng)
        state = draw_canvas_state(canvas, CanvasConfig(), encoder.pad, rng)
        assert canvas is drill
        assert all(drill.learned[position] for position in state)
        for position in range(1, len(drill.ids)):
            if drill.learned[position] and drill.learned[position - 1]:
                assert (position in state) == (position - 1 in state)


def test_a_masked_token_is_predicted_at_its_own_column() -> None:
    sample = example(3, 8)
    layout = canvas_layout(sample, CanvasConfig(bucket=4))
    batch = canvas_batch([sample], [{4: 1.0, 6: 0.5}], layout, MASK)
    assert batch.columns.tolist() == [4, 6]
    assert batch.targets.tolist() == [104, 106]
    assert batch.weights.tolist() == [1.0, 0.5]
    assert batch.tokens.tolist() == [[100, 101, 102, 103, MASK, 105, MASK, STOP]]


def test_every_column_sees_its_canvas_and_nothing_of_the_padding(network: Network) -> None:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(10, 300, (2, 12), generator=generator)
    layout = CanvasLayout(width=12, lengths=(12, 7))
    together = network(tokens, layout.positions(), layout.attend)
    for row, length in enumerate(layout.lengths):
        alone = CanvasLayout(width=length, lengths=(length,))
        expected = network(tokens[row : row + 1, :length], alone.positions(), alone.attend)
        torch.testing.assert_close(together[row : row + 1, :length], expected)
    changed = tokens.clone()
    changed[0, -1] = 5
    moved = network(changed, layout.positions(), layout.attend)[0, 0] - together[0, 0]
    assert moved.abs().max() > 1e-4


def test_batches_are_about_as_large_as_asked_and_the_same_every_time() -> None:
    encoder = Encoder(build_tokenizer())
    config = BatchConfig(columns=1024, canvas=CanvasConfig())
    one, two = (batches(encoder, config, 1, 5) for _ in range(2))
    for _ in range(5):
        first, second = next(one), next(two)
        assert torch.equal(first.tokens, second.tokens)
        assert isinstance(first.layout, CanvasLayout)
        assert 1024 <= first.tokens.numel() < 1024 + first.layout.width
        assert max(first.layout.lengths) > first.layout.width - 32


def decoded_by_definition(
    network: Network, prompt: list[int], threshold: float, columns: int, sub: int
) -> list[int]:
    canvas = prompt + [MASK] * columns
    layout = CanvasLayout(width=len(canvas), lengths=(len(canvas),))
    for low in range(len(prompt), len(canvas), sub):
        while masked := [p for p in range(low, min(low + sub, len(canvas))) if canvas[p] == MASK]:
            hidden = network(torch.tensor([canvas]), layout.positions(), layout.attend)[0]
            scores = network.logits(hidden)
            scores[:, MASK] = -torch.inf
            found = {p: scores[p].softmax(-1).max(-1) for p in masked}
            best = max(masked, key=lambda p: float(found[p].values))
            for position, (confidence, token) in found.items():
                if position == best or confidence >= threshold:
                    canvas[position] = int(token)
        reply = canvas[len(prompt) : low + sub]
        if STOP in reply:
            return reply[: reply.index(STOP) + 1]
    return canvas[len(prompt) :]


@torch.no_grad()
@pytest.mark.parametrize("sub", [4, 8, 20])
def test_decoding_gives_each_prompt_what_the_definition_gives_it_alone(network: Network, sub: int) -> None:
    rng = random.Random(1)
    prompts = [[rng.randrange(10, 200) for _ in range(length)] for length in (3, 16, 9)]
    found = decode_canvas(network, prompts, mask=MASK, stop=STOP, threshold=0.01, columns=20, sub_block=sub)
    assert found == [decoded_by_definition(network, prompt, 0.01, 20, sub) for prompt in prompts]
    assert all(MASK not in reply for reply in found)


def test_a_canvas_without_late_marks_can_be_drawn() -> None:
    plain = dataclasses.replace(example(3, 30), late=())
    state = draw_canvas_state(plain, CanvasConfig(aligned=1.0), FILL, random.Random(1))
    assert state
