"""Which rows go through the transformer together, where their keys go and what each of them sees.

A forward takes rows from any mixture of requests, laid out flat. Linear layers do not care; only
attention does. Every query of a segment sees the same keys (block-causal attention inside one block
has no other mask), so a segment needs no mask, and segments of equal length share one kernel call
when padding their keys to a common length is cheap. Only where several small blocks of a prompt are fed
at once do its queries see a staircase of keys.

Shape legend: T rows of the forward, K key/value heads, B segments of a run, N rows of a segment, L visible keys.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.model.device import upload
from unmask.model.kv_cache import KVCache

SHARED_CALL_LIMIT = {"cpu": 1 << 14, "elsewhere": 1 << 20}
"""Key elements up to which segments of different slots are gathered and padded into one call.

A call costs a CPU little beside the copies; on accelerators calls are what costs.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one slot that see the same keys, positions `[0, visible)`, or a staircase of them."""

    slot: int
    positions: Sequence[int]
    visible: int
    first: int = 0
    """First position of the block that is decoded: features are kept by their offset from it."""
    stair: int = 0
    """Positions of a block where there are several, each of which is seen to its own end; 0: all see the same."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring positions of one slot."""

    slot: int
    positions: slice


@dataclass(frozen=True, slots=True)
class Run:
    """Segments of equal length whose attention is one kernel call."""

    segments: int
    rows: int
    visible: int
    slots: slice | Tensor
    """A slice where the slots lie side by side (a view of the buffers), else indices (a gathered copy)."""
    bias_B11L: Tensor | None
    """Zero or minus infinity; None where every segment sees the same number of keys."""
    stair_NL: Tensor | None = None
    """The same for every row of a single segment whose rows see a staircase of keys."""


class Geometry:
    """The layout of one forward: positions, places to write keys to, and attention runs."""

    def __init__(self, segments: Sequence[Segment], cache: KVCache, dtype: torch.dtype, device: torch.device):
        self.segments = segments
        self.cache = cache
        self.dtype = dtype
        only = segments[0]
        self.positions: slice | Tensor
        self.writes: Stretch | Tensor
        """Where keys go: a stretch of positions, or for every row the places of its heads, [T, K], in a layer's
        buffer seen as rows of a head."""
        if len(segments) == 1 and isinstance(only.positions, range):
            self.positions = slice(only.positions.start, only.positions.stop)
            self.writes = Stretch(only.slot, self.positions)
        else:
            positions = [position for segment in segments for position in segment.positions]
            slots = [segment.slot for segment in segments for _ in segment.positions]
            both = upload([positions, slots], device)
            heads_K = torch.arange(cache.kv_heads, device=device)
            self.positions = both[0]
            self.writes = (both[1, :, None] * cache.kv_heads + heads_K) * cache.length + both[0, :, None]
        self.runs = _runs(segments, cache, dtype, device)

    @property
    def rows(self) -> int:
        """Rows of the forward."""
        return sum(len(segment.positions) for segment in self.segments)

    def narrowed(self, rows: slice | Tensor, segments: Sequence[Segment]) -> "Geometry":
        """The layout of some of the rows, of which each of `segments` holds so many."""
        assert isinstance(self.positions, Tensor)
        assert isinstance(self.writes, Tensor)
        part = copy(self)
        part.positions, part.writes = self.positions[rows], self.writes[rows]
        part.segments = segments
        part.runs = _runs(segments, self.cache, self.dtype, self.positions.device)
        return part


def _runs(
    segments: Sequence[Segment], cache: KVCache, dtype: torch.dtype, device: torch.device
) -> tuple[Run, ...]:
    limit = SHARED_CALL_LIMIT["cpu" if device.type == "cpu" else "elsewhere"] // cache.key_width
    return tuple(_make_run(group, dtype, device) for group in _group(segments, limit))


def _group(segments: Sequence[Segment], length: int) -> list[list[Segment]]:
    """Split into runs of consecutive segments that one attention call may serve."""
    groups: list[list[Segment]] = []
    for segment in segments:
        last = None if segment.stair or not groups or groups[-1][0].stair else groups[-1]
        if last and len(last[0].positions) == len(segment.positions) and _shares(last, segment, length):
            last.append(segment)
        else:
            groups.append([segment])
    return groups


def _shares(group: list[Segment], segment: Segment, length: int) -> bool:
    if segment.visible == group[0].visible and segment.slot == group[-1].slot + 1 and _is_view(group):
        return True
    longest = max(segment.visible, *(member.visible for member in group))
    return (len(group) + 1) * longest <= length


def _is_view(group: Sequence[Segment]) -> bool:
    first = group[0]
    return all(
        member.slot == first.slot + index and member.visible == first.visible
        for index, member in enumerate(group)
    )


def _make_run(group: Sequence[Segment], dtype: torch.dtype, device: torch.device) -> Run:
    first = group[0]
    visible = max(segment.visible for segment in group)
    if _is_view(group):
        slots: slice | Tensor = slice(first.slot, first.slot + len(group))
    else:
        slots = upload([segment.slot for segment in group], device)
    bias = None
    if any(segment.visible != visible for segment in group):
        lengths_B1 = torch.tensor([[segment.visible] for segment in group])
        hidden_BL = torch.arange(visible) >= lengths_B1
        bias_BL = torch.zeros(hidden_BL.shape, dtype=dtype).masked_fill_(hidden_BL, -torch.inf)
        bias = bias_BL[:, None, None, :].to(device, non_blocking=True)
    stair = _staircase(first, dtype).to(device, non_blocking=True) if first.stair else None
    return Run(len(group), len(first.positions), visible, slots, bias, stair)


def _staircase(segment: Segment, dtype: torch.dtype) -> Tensor:
    """What hides from every row the blocks behind its own."""
    ends_N = torch.tensor(
        [position // segment.stair * segment.stair + segment.stair for position in segment.positions]
    )
    hidden_NL = torch.arange(segment.visible) >= ends_N[:, None]
    return torch.zeros(hidden_NL.shape, dtype=dtype).masked_fill_(hidden_NL, -torch.inf)
