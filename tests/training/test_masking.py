"""The block-diffusion mask, the states of the copies and the targets, against definitions written out by hand."""

import dataclasses
import random

import pytest
import torch
import torch.nn.functional as F

from training.attention import StreamLayout, attend_causally, visibility
from training.batches import causal_batch, diffusion_batch
from training.encoding import Encoded
from training.mask_states import NoiseConfig, draw_states

SHAPES = [(0, 1), (0, 2), (1, 2), (0, 4), (1, 4), (3, 4)]
BLOCK = 4


def columns_by_definition(first: int, blocks: int) -> list[tuple[int, int]]:
    """(stream, position) of every column."""
    clean = [(0, position) for position in range((blocks - 1) * BLOCK)]
    noised = [(s, position) for s in (1, 2) for position in range(first * BLOCK, blocks * BLOCK)]
    return clean + noised


def sees(query: tuple[int, int], key: tuple[int, int]) -> bool:
    query_block, key_block = query[1] // BLOCK, key[1] // BLOCK
    if key[0] == query[0] and key_block == query_block:
        return True
    return key[0] == 0 and key_block < query_block


@pytest.mark.parametrize(("first", "blocks"), SHAPES)
def test_the_mask_is_the_one_defined(first: int, blocks: int) -> None:
    layout = StreamLayout(block=BLOCK, first=first, blocks=blocks)
    columns = columns_by_definition(first, blocks)
    expected = torch.tensor([[sees(query, key) for key in columns] for query in columns])
    assert torch.equal(visibility(layout), expected)
    assert layout.positions().tolist() == [position for _, position in columns]
    assert layout.columns == len(columns)


@pytest.mark.parametrize(("first", "blocks"), SHAPES)
def test_attention_by_blocks_equals_attention_under_the_mask(first: int, blocks: int) -> None:
    layout = StreamLayout(block=BLOCK, first=first, blocks=blocks)
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, layout.columns, 8, generator=generator) for heads in (4, 2, 2))
    wide = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    expected = F.scaled_dot_product_attention(q, *wide, attn_mask=visibility(layout))
    torch.testing.assert_close(layout.attend(0, q, k, v), expected)


def test_causal_attention_hides_the_future() -> None:
    q, k, v = (torch.randn(1, heads, 6, 8) for heads in (4, 2, 2))
    changed = v.clone()
    changed[:, :, 4:] += 1
    before, after = attend_causally(0, q, k, v), attend_causally(0, q, k, changed)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.equal(before[:, :, 4:], after[:, :, 4:])


def example(given: int, length: int) -> Encoded:
    learned = (False,) * given + (True,) * (length - given)
    return Encoded(ids=tuple(range(100, 100 + length)), learned=learned, given=given, drill=False)


@pytest.mark.parametrize(("given", "length"), [(5, 30), (32, 70), (40, 97), (31, 64), (64, 65)])
def test_published_masks_complement_each_other(given: int, length: int) -> None:
    config = NoiseConfig(aligned=0.0)
    one, two = draw_states(example(given, length), config, random.Random(1))
    first_of_blocks = {start for start in range(0, length, 32) if start >= given}
    assert not set(one) & set(two)
    assert set(one) | set(two) == set(range(given, length)) - first_of_blocks


@pytest.mark.parametrize("given", [5, 32, 40, 47])
def test_aligned_states_are_those_of_decoding(given: int) -> None:
    config, length = NoiseConfig(aligned=1.0), 110
    rng, sample = random.Random(2), dataclasses.replace(example(given, length), late=(True, False) * 55)
    for _ in range(50):
        for state in draw_states(sample, config, rng):
            for start in range(given // 32 * 32, length, 32):
                block = range(max(start + 1, given), min(start + 32, length))
                counted = [p for p in block if state.get(p) == 1.0]
                assert len({p // 8 for p in counted}) <= 1
                current = counted[0] // 8
                assert all(p not in state for p in block if p // 8 < current)
                assert all(state.get(p) == config.later_weight for p in block if p // 8 > current)
                hidden = [p for p in block if p // 8 == current and p > counted[0] and sample.late[p]]
                assert all(p in state for p in hidden)


def test_a_masked_token_is_predicted_from_the_column_before_it_and_a_first_one_by_the_clean_stream() -> None:
    sample, layout = example(3, 11), StreamLayout(block=BLOCK, first=0, blocks=3)
    batch = diffusion_batch([sample], [({5: 1.0, 6: 0.5}, {9: 1.0})], layout, mask=7, clean_weight=1.0)
    streams = columns_by_definition(0, 3)
    found = {
        (*streams[column], target, weight)
        for column, target, weight in zip(
            batch.columns.tolist(), batch.targets.tolist(), batch.weights.tolist(), strict=True
        )
    }
    assert found == {(0, 3, 104, 1.0), (0, 7, 108, 1.0), (1, 4, 105, 1.0), (1, 5, 106, 0.5), (2, 8, 109, 1.0)}
    shown = dict(zip(streams, batch.tokens[0].tolist(), strict=True))
    hidden = {(1, 5), (1, 6), (2, 9)} | {(stream, 11) for stream in (1, 2)}
    assert {column for column, token in shown.items() if token == 7} == hidden
    assert all(shown[column] == 100 + column[1] for column in shown if column not in hidden)


def test_causal_rows_are_packed_and_weigh_the_prompt_less() -> None:
    batch = causal_batch([example(3, 5), example(1, 4), example(2, 3)], width=8, pad=0, prompt_weight=0.25)
    assert batch.tokens.tolist() == [[100, 101, 102, 103, 104, 100, 101, 102], [100, 101, 102, 0, 0, 0, 0, 0]]
    assert batch.rows.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert batch.columns.tolist() == [0, 1, 2, 3, 5, 6, 0, 1]
    assert batch.targets.tolist() == [101, 102, 103, 104, 101, 102, 101, 102]
    assert batch.weights.tolist() == [0.25, 0.25, 1.0, 1.0, 1.0, 1.0, 0.25, 1.0]
