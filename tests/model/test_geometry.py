"""Which segments share an attention call, and that every way of calling gives plain attention."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from checkpoints import CPU, small_model
from unmask.model import attention as attention_module
from unmask.model import geometry as geometry_module
from unmask.model.attention import Attention
from unmask.model.geometry import Geometry, Run, Segment, Stretch
from unmask.model.kv_cache import KVCache
from unmask.model.rotation import RopeTables
from unmask.model.scratch import Scratch

COLUMNS = 64
CONFIG = small_model().engine.config


def layout(segments: Sequence[Segment], slots: int = 6) -> Geometry:
    return Geometry(segments, KVCache(CONFIG, slots, COLUMNS, CPU, torch.float32), torch.float32, CPU)


def blocks(*places: tuple[int, int]) -> list[Segment]:
    """Segments of eight rows: slot and end."""
    return [Segment(slot, range(end - 8, end), end) for slot, end in places]


def test_one_segment_writes_a_slice_and_sees_a_view() -> None:
    found = layout([Segment(2, range(8, 16), 32)])
    assert found.positions == slice(8, 16)
    assert found.writes == Stretch(2, slice(8, 16))
    (run,) = found.runs
    assert (run.segments, run.rows, run.visible, run.slots, run.bias_B11L) == (1, 8, 32, slice(2, 3), None)


def test_several_segments_write_by_index() -> None:
    found = layout(blocks((0, 8), (3, 16)))
    assert isinstance(found.positions, Tensor)
    assert isinstance(found.writes, Tensor)
    assert found.positions.tolist() == [*range(8), *range(8, 16)]
    flat = torch.zeros(6, CONFIG.num_kv_heads, COLUMNS)
    flat.view(-1)[found.writes.flatten()] = 1
    written = [(slot, column) for slot, column in flat.all(dim=1).nonzero().tolist()]
    assert written == [*((0, column) for column in range(8)), *((3, column) for column in range(8, 16))]
    assert flat.sum() == found.writes.numel()


def test_neighbouring_slots_of_equal_length_are_a_view() -> None:
    (run,) = layout(blocks((1, 16), (2, 16), (3, 16))).runs
    assert (run.segments, run.slots, run.visible, run.bias_B11L) == (3, slice(1, 4), 16, None)


@pytest.mark.parametrize("places", [[(0, 16), (2, 16)], [(1, 16), (0, 16)], [(2, 16), (2, 16)]])
def test_other_slots_are_gathered(places: list[tuple[int, int]]) -> None:
    (run,) = layout(blocks(*places)).runs
    assert isinstance(run.slots, Tensor)
    assert run.slots.tolist() == [slot for slot, _ in places]
    assert run.bias_B11L is None


def test_unequal_lengths_are_padded_and_hidden_by_a_bias() -> None:
    (run,) = layout(blocks((0, 8), (1, 24), (2, 16))).runs
    assert run.visible == 24
    assert run.bias_B11L is not None
    assert run.bias_B11L.shape == (3, 1, 1, 24)
    hidden = (run.bias_B11L == -math.inf).sum(dim=-1).flatten().tolist()
    assert hidden == [16, 0, 8]
    assert set(run.bias_B11L.flatten().tolist()) == {0.0, -math.inf}


def test_segments_of_other_row_counts_are_runs_of_their_own() -> None:
    found = layout([Segment(0, range(4), 16), *blocks((1, 16), (2, 16)), Segment(3, range(4), 16)])
    assert [(run.segments, run.rows) for run in found.runs] == [(1, 4), (2, 8), (1, 4)]


def test_large_segments_are_not_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    width = CONFIG.num_kv_heads * CONFIG.head_dim
    monkeypatch.setitem(geometry_module.SHARED_CALL_LIMIT, "cpu", 2 * 24 * width)
    apart = layout(blocks((0, 24), (2, 24), (4, 24)))
    assert [run.segments for run in apart.runs] == [2, 1]
    views = layout(blocks((0, 24), (1, 24), (2, 24), (3, 24)))
    assert [run.segments for run in views.runs] == [4], "a view costs no copy, whatever its size"


def attend(queries: Tensor, cache: KVCache, runs: Sequence[Run]) -> Tensor:
    """The first layer's attention of some rows."""
    return Attention(CONFIG, cache, runs, queries, Scratch(CPU, queries.dtype))(0)


def dense_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention head by head with repeated key heads, in float64."""
    heads = []
    for head in range(CONFIG.num_heads):
        shared = head // CONFIG.queries_per_kv
        scores = queries[:, head].double() @ keys[shared].double().T / math.sqrt(CONFIG.head_dim)
        heads.append(scores.softmax(dim=-1) @ values[shared].double())
    return torch.cat(heads, dim=-1)


LAYOUTS = {
    "one": blocks((1, 16)),
    "side by side": blocks((1, 16), (2, 16)),
    "gathered": blocks((3, 16), (0, 16)),
    "padded": blocks((0, 8), (4, 40), (2, 24)),
    "one slot, several blocks": blocks((1, 8), (1, 16), (1, 24)),
    "mixed": [Segment(0, range(4), 8), *blocks((1, 16), (2, 32)), Segment(3, [9, 11], 24)],
}


@pytest.mark.parametrize("plain_limit", [0, 1 << 20], ids=["fused", "plain"])
@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["never shared", "shared"])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_attention_equals_dense_attention(
    name: str, limit: int, plain_limit: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(geometry_module.SHARED_CALL_LIMIT, "cpu", limit)
    monkeypatch.setattr(attention_module, "PLAIN_LIMIT", plain_limit)
    segments = LAYOUTS[name]
    draw = torch.Generator().manual_seed(0)
    cache = KVCache(CONFIG, 6, COLUMNS, CPU, dtype)
    for buffer in (cache.keys_LBKCd[0], cache.values_LBKCd[0]):
        buffer.copy_(torch.randn(buffer.shape, generator=draw) * 2)
    rows = sum(len(segment.positions) for segment in segments)
    queries = torch.randn(rows, CONFIG.num_heads, CONFIG.head_dim, generator=draw).to(dtype)
    runs = Geometry(segments, cache, dtype, CPU).runs

    found = attend(queries, cache, runs)

    start = 0
    for segment in segments:
        stop = start + len(segment.positions)
        seen = slice(0, segment.visible)
        expected = dense_attention(
            queries[start:stop],
            cache.keys_LBKCd[0][segment.slot, :, seen],
            cache.values_LBKCd[0][segment.slot, :, seen],
        )
        assert (found[start:stop] - expected).abs().max() < 16 * torch.finfo(dtype).eps
        start = stop


@pytest.mark.parametrize("name", LAYOUTS)
def test_attention_scores_are_fp32_inside(name: str) -> None:
    """Products of 100,000 overflow fp16; a softmax over them is still a softmax."""
    segments = LAYOUTS[name]
    cache = KVCache(CONFIG, 6, COLUMNS, CPU, torch.float16)
    draw = torch.Generator().manual_seed(1)
    signs = torch.randn(cache.keys_LBKCd[0].shape, generator=draw).sign()
    cache.keys_LBKCd[0].copy_(signs * 200)
    cache.values_LBKCd[0].copy_(torch.randn(signs.shape, generator=draw))
    rows = sum(len(segment.positions) for segment in segments)
    queries = torch.full((rows, CONFIG.num_heads, CONFIG.head_dim), 200.0, dtype=torch.float16)
    assert 200 * 200 * CONFIG.head_dim > torch.finfo(torch.float16).max
    runs = Geometry(segments, cache, torch.float16, CPU).runs
    found = attend(queries, cache, runs)
    start = 0
    for segment in segments:
        stop = start + len(segment.positions)
        seen = slice(0, segment.visible)
        expected = dense_attention(
            queries[start:stop],
            cache.keys_LBKCd[0][segment.slot, :, seen],
            cache.values_LBKCd[0][segment.slot, :, seen],
        )
        assert (found[start:stop] - expected).abs().max() < 1e-2
        start = stop


def test_unwritten_columns_do_not_reach_padded_attention() -> None:
    """A shorter segment is padded with columns nobody has written; they must weigh nothing."""
    cache = KVCache(CONFIG, 2, COLUMNS, CPU, torch.float32)
    runs = Geometry(blocks((0, 8), (1, 40)), cache, torch.float32, CPU).runs
    draw = torch.Generator().manual_seed(2)
    queries = torch.randn(16, CONFIG.num_heads, CONFIG.head_dim, generator=draw)
    before = attend(queries, cache, runs)[:8].clone()
    cache.keys_LBKCd[0][0, :, 8:] = 1e6
    cache.values_LBKCd[0][0, :, 8:] = 1e6
    after = attend(queries, cache, runs)[:8]
    assert torch.equal(before, after)


def rotated(tables: RopeTables, positions: slice | Tensor, rows_THd: Tensor) -> Tensor:
    target = torch.empty_like(rows_THd)
    tables.rotation(positions, rows_THd, target)()
    return target


def test_rotation_depends_on_distance_alone() -> None:
    tables = RopeTables.of(CONFIG, COLUMNS, CPU, torch.float32)
    draw = torch.Generator().manual_seed(3)
    query, key = torch.randn(2, 1, 1, CONFIG.head_dim, generator=draw)

    def product(first: int, second: int) -> float:
        left = rotated(tables, slice(first, first + 1), query[None])
        right = rotated(tables, slice(second, second + 1), key[None])
        return float((left * right).sum())

    assert math.isclose(product(0, 7), product(50, 57), abs_tol=1e-5)
    assert not math.isclose(product(0, 7), product(0, 8), abs_tol=1e-3)
    assert torch.equal(rotated(tables, slice(0, 1), query[None]), query[None])


def test_rotation_by_slice_equals_rotation_by_index() -> None:
    tables = RopeTables.of(CONFIG, COLUMNS, CPU, torch.float32)
    rows = torch.randn(4, 3, CONFIG.head_dim, generator=torch.Generator().manual_seed(4))
    by_slice, by_index = rotated(tables, slice(5, 9), rows), rotated(tables, torch.arange(5, 9), rows)
    assert torch.equal(by_slice, by_index)
