"""What layers left behind for later steps: one static buffer a feature, addressed by slot and offset.

A slot's rows are simply overwritten by the next request that takes it; whether a row's content is
valid is known to the schedule (SequenceState.remembered), which refuses to replay what was not refreshed.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from unmask.model.device import upload
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer

Places = slice | Tensor


class FeatureStore:
    """Hidden-size rows by name; buffers are made when a name is first remembered."""

    def __init__(self, transformer: Transformer, slots: int, block_size: int) -> None:
        self._transformer = transformer
        self._rows = slots * block_size
        self._block_size = block_size
        self._buffers: dict[Hashable, Tensor] = {}

    def places(self, segments: Sequence[Segment]) -> Places:
        """Where the rows of some segments lie."""
        size, only = self._block_size, segments[0]
        if len(segments) == 1 and isinstance(only.positions, range):
            first = only.slot * size + only.positions.start - only.first
            return slice(first, first + len(only.positions))
        places = [
            segment.slot * size + position - segment.first
            for segment in segments
            for position in segment.positions
        ]
        return upload(places, self._transformer.device)

    def remember(self, name: Hashable, places: Places, rows_TD: Tensor) -> None:
        """Overwrite the rows at `places`."""
        buffer = self._buffer(name, rows_TD.dtype)
        if isinstance(places, slice):
            buffer[places] = rows_TD
        else:
            buffer.index_copy_(0, places, rows_TD)

    def recall(self, name: Hashable, places: Places) -> Tensor:
        """The rows at `places` as last remembered; a view or a copy, not to be written to."""
        return self._buffer(name, self._transformer.stream_dtype)[places]

    def copy_slot(self, source: int, target: int) -> None:
        """Give one slot the rows of another."""
        size = self._block_size
        for buffer in self._buffers.values():
            buffer[target * size : (target + 1) * size] = buffer[source * size : (source + 1) * size]

    def _buffer(self, name: Hashable, dtype: torch.dtype) -> Tensor:
        """The buffer of a name; states and changes of the stream have another dtype than what a branch computed."""
        if name not in self._buffers:
            width, device = self._transformer.config.hidden_size, self._transformer.device
            self._buffers[name] = torch.zeros(self._rows, width, device=device, dtype=dtype)
        return self._buffers[name]
