"""The residual stream of a forward whose parts have different plans, and what sets of parts need of it.

A set of parts has rows, places and a frame, made when first asked for. Neighbouring parts are a view of the
stream; others are gathered, and what they add is scattered back.

Shape legend: T rows, D hidden.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from unmask.engine.feature_store import FeatureStore, Places
from unmask.engine.mixing import Parts
from unmask.model.device import upload
from unmask.model.frame import Frame
from unmask.model.geometry import Segment

FrameOf = Callable[[Places, Sequence[Segment]], Frame]
"""Makes the frame of some rows, which are whole segments."""


class Stream:
    """Rows on their way up; segments come in parts."""

    def __init__(
        self,
        x_TD: Tensor,
        segments: Sequence[Segment],
        sizes: Sequence[int],
        frame_of: FrameOf,
        features: FeatureStore,
        places: Places | None = None,
    ) -> None:
        self.x_TD = x_TD
        self.segments = segments
        self.sizes = sizes
        """Segments of every part."""
        self._frame_of = frame_of
        self._features = features
        self._places = places
        self._of_part = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        lengths = [sum(len(segment.positions) for segment in segments[part]) for part in self._of_part]
        self._bounds = list(accumulate(lengths, initial=0))
        self._rows: dict[Parts, Places] = {}
        self._places_of: dict[Parts, Places] = {}
        self._frames: dict[Parts, Frame] = {}

    def members(self, parts: Parts) -> list[Segment]:
        """The segments of some parts."""
        return [segment for part in parts for segment in self.segments[self._of_part[part]]]

    def rows(self, parts: Parts) -> Places:
        """Where the rows of some parts lie in the stream."""
        if parts not in self._rows:
            bounds = self._bounds
            self._rows[parts] = _joined(
                [range(bounds[part], bounds[part + 1]) for part in parts], self.x_TD.device
            )
        return self._rows[parts]

    def within(self, outer: Parts, inner: Parts) -> Places:
        """Where the rows of some parts lie among those of a set that holds them."""
        found, start = [], 0
        for part in outer:
            length = self._bounds[part + 1] - self._bounds[part]
            if part in inner:
                found.append(range(start, start + length))
            start += length
        return _joined(found, self.x_TD.device)

    def take(self, parts: Parts) -> Tensor:
        """The rows of some parts: a view or a copy, not to be written to."""
        return self.x_TD if len(parts) == len(self.sizes) else self.x_TD[self.rows(parts)]

    def add(self, parts: Parts, change_TD: Tensor) -> None:
        """Change the rows of some parts."""
        if len(parts) == len(self.sizes):
            self.x_TD += change_TD
            return
        rows = self.rows(parts)
        if isinstance(rows, slice):
            self.x_TD[rows].add_(change_TD)
        else:
            self.x_TD.index_add_(0, rows, change_TD.to(self.x_TD.dtype))

    def places(self, parts: Parts) -> Places:
        """Where the features of some parts are kept."""
        if parts not in self._places_of:
            if self._places is None:
                self._places = self._features.places(self.segments)
            every = len(parts) == len(self.sizes)
            self._places_of[parts] = self._places if every else _listed(self._places)[self.rows(parts)]
        return self._places_of[parts]

    def frame(self, parts: Parts) -> Frame:
        """What the layers share that run on some parts."""
        if parts not in self._frames:
            self._frames[parts] = self._frame_of(self.rows(parts), self.members(parts))
        return self._frames[parts]

    def narrowed(self, kept_T: Tensor, segments: Sequence[Segment], frame_of: FrameOf) -> "Stream":
        """The stream with some of its rows, `segments` as long as they are left."""
        every = tuple(range(len(self.sizes)))
        places = _listed(self.places(every))[kept_T]
        return Stream(self.x_TD[kept_T], segments, self.sizes, frame_of, self._features, places)


def _listed(places: Places) -> Tensor:
    assert isinstance(places, Tensor), "the rows of several segments, or to choose among, are no range"
    return places


def _joined(ranges: Sequence[range], device: torch.device) -> Places:
    """Some ranges of rows as one: a slice where they meet."""
    if all(left.stop == right.start for left, right in pairwise(ranges)):
        return slice(ranges[0].start, ranges[-1].stop)
    return upload([row for each in ranges for row in each], device)
