"""The one forward: every pass of every request, baseline or reuse, generation or scoring, goes through it.

Takes flat rows of any mixture of requests and their plans, returns their final hidden states. It does what
the plans say and nothing else; whether a plan is allowed was checked by the schedule.

Shape legend: T rows, D hidden, B requests (segments), L layers.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unmask.engine.feature_store import FeatureStore, Places
from unmask.engine.mixing import BranchWork, LayerWork, Parts, layer_works
from unmask.engine.step_plan import Feature, Op, StepPlan, Unit
from unmask.engine.stream import Stream
from unmask.errors import UnmaskError
from unmask.model.device import upload
from unmask.model.frame import Frame
from unmask.model.geometry import Geometry, Segment
from unmask.model.kv_cache import KVCache
from unmask.model.rotation import RopeTables
from unmask.model.scratch import Scratch
from unmask.model.transformer import Transformer

KEPT_FRAMES = 8
"""Frames of the last so many sets of places are kept: a block's and its sub-blocks', and a few others."""


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Neighbouring segments of a forward that share a plan."""

    plan: StepPlan
    segments: int
    selection: Sequence[tuple[int, int]] = ()
    """Where the plan has rows compete: for each segment how many of its rows run in any case (they come first) and how
    many of the others may join them by drift."""


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What a forward leaves for the decoder."""

    hidden_TD: Tensor
    """Final hidden states of the rows that went through every layer, in the order they were fed."""
    drift_BL: Tensor | None = None
    """How far each layer's input had moved since that layer last computed, for the segments whose plan asked for it."""


class Observer(Protocol):
    """Sees what every layer did in forwards that compute everything."""

    def begin(self, tokens: Sequence[int], segments: Sequence[Segment]) -> bool:
        """Say whether to watch a forward of these rows."""
        ...

    def layer(self, input_TD: Tensor, attention_TD: Tensor, mlp_TD: Tensor) -> None:
        """Take the input of the next layer and the changes that its branches made; they are not written to."""
        ...

    def end(self) -> None:
        """The forward is over."""
        ...


class Workspace:
    """A transformer with the buffers that one decoding writes to."""

    def __init__(self, transformer: Transformer, slots: int, length: int, block_size: int) -> None:
        self.transformer = transformer
        device, dtype = transformer.device, transformer.dtype
        self.cache = KVCache(transformer.config, slots, length, device, dtype)
        self.rope = RopeTables.of(transformer.config, length, device, dtype)
        self.scratch = Scratch(device, dtype)
        self._frames: OrderedDict[tuple[Segment, ...], Frame] = OrderedDict()
        """The last frames: steps of a block feed the same places again and again."""
        self.features = FeatureStore(transformer, slots, block_size)
        self.observer: Observer | None = None

    def forward(
        self,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        parts: Sequence[PlannedPart] = (),
        reads: Sequence[int] | None = None,
    ) -> ForwardOutput:
        """Push rows through the layers as planned; without parts every layer computes every row.

        Plans that replay everything share a forward with their like only. With `reads` the output is that of
        these of the rows that go through every layer.
        """
        numbers_T = upload([*tokens, *(reads or ())], self.transformer.device)
        output = self._through(numbers_T[: len(tokens)], tokens, segments, parts)
        if reads is None:
            return output
        return ForwardOutput(output.hidden_TD[numbers_T[len(tokens) :]], output.drift_BL)

    def _through(
        self,
        tokens_T: Tensor,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        parts: Sequence[PlannedPart],
    ) -> ForwardOutput:
        if parts and parts[0].plan.replays_everything:
            places = self.features.places(segments)
            return ForwardOutput(self.features.recall(self._output, places))
        x_TD = self.transformer.embed(tokens_T)
        if parts:
            sizes = [part.segments for part in parts]
            return self._planned(Stream(x_TD, segments, sizes, self._kept, self.features), parts)
        frame = self.frame(segments)
        if self.observer is not None and self.observer.begin(tokens, segments):
            return self._observed(x_TD, frame, self.observer)
        for index in range(len(self.transformer.layers)):
            x_TD += self.transformer.attention(index, x_TD, frame)
            x_TD += self.transformer.mlp(index, x_TD, frame)
        return ForwardOutput(x_TD)

    def _observed(self, x_TD: Tensor, frame: Frame, observer: Observer) -> ForwardOutput:
        """Compute every layer and show it to the observer."""
        for index in range(len(self.transformer.layers)):
            input_TD = x_TD.clone()
            attention_TD = self.transformer.attention(index, x_TD, frame)
            x_TD += attention_TD
            mlp_TD = self.transformer.mlp(index, x_TD, frame)
            x_TD += mlp_TD
            observer.layer(input_TD, attention_TD, mlp_TD)
        observer.end()
        return ForwardOutput(x_TD)

    def copy_slot(self, source: int, target: int, length: int) -> None:
        """Give one slot the keys, values and features of another, as far as `length`."""
        self.copy_keys(source, target, length)
        self.features.copy_slot(source, target)

    def copy_keys(self, source: int, target: int, length: int) -> None:
        """Give one slot the keys and values of another, as far as `length`."""
        self.cache.copy(source, target, length)

    @property
    def _output(self) -> Feature:
        return Unit.OUTPUT, 0, len(self.transformer.layers)

    def _planned(self, stream: Stream, parts: Sequence[PlannedPart]) -> ForwardOutput:
        """Run each layer on the parts that compute there."""
        plans = tuple(part.plan for part in parts)
        before: dict[tuple[Feature, Parts], Tensor] = {}
        moved_LT: list[Tensor] = []
        works = layer_works(plans, len(self.transformer.layers))
        for layer, work in enumerate(works):
            if work.selects:
                stream = self._select_rows(stream, layer, work.selects, parts)
            if work.measures:
                moved_LT.append(self._movement(stream, layer, work))
            for feature, some in work.replays:
                stream.add(some, self.features.recall(feature, stream.places(some)))
            for feature, some in work.begins:
                before[feature, some] = stream.take(some).clone()
            self._run(stream, layer, Unit.ATTENTION, work.attention)
            self._run(stream, layer, Unit.MLP, work.mlp)
            for feature, some in work.ends:
                change_TD = stream.take(some) - before.pop((feature, some))
                self.features.remember(feature, stream.places(some), change_TD)
        outputs = tuple(
            number for number, plan in enumerate(plans) if plan.unit is Unit.OUTPUT and Op.REFRESH in plan.ops
        )
        if outputs:
            self.features.remember(self._output, stream.places(outputs), stream.take(outputs))
        return ForwardOutput(stream.x_TD, self._drift(stream, works[0].measures, moved_LT))

    def _run(self, stream: Stream, layer: int, branch: Unit, work: BranchWork) -> None:
        """Add one branch's change of the stream: computed, and remembered, or put back."""
        feature = (branch, layer, layer + 1)
        if some := work.computes:
            run = self.transformer.attention if branch is Unit.ATTENTION else self.transformer.mlp
            change_TD = run(layer, stream.take(some), stream.frame(some))
            stream.add(some, change_TD)
            if kept := work.remembers:
                rows_TD = change_TD if kept == some else change_TD[stream.within(some, kept)]
                self.features.remember(feature, stream.places(kept), rows_TD)
        if some := work.replays:
            stream.add(some, self.features.recall(feature, stream.places(some)))

    def _select_rows(self, stream: Stream, layer: int, chosen: Parts, parts: Sequence[PlannedPart]) -> Stream:
        """Keep the rows that always run and, of the others, those whose input has moved most; remember theirs."""
        name = ("input", layer)
        if any(count for part in chosen for _, count in parts[part].selection):
            kept_T, lengths = self._most_moved(stream, name, chosen, parts)
            every = tuple(range(len(parts)))
            geometry = stream.frame(every).geometry.narrowed(
                kept_T,
                [
                    Segment(segment.slot, range(length), segment.visible, segment.first)
                    for segment, length in zip(stream.segments, lengths, strict=True)
                ],
            )
            stream = stream.narrowed(
                kept_T,
                geometry.segments,
                lambda rows, segments: self._frame(geometry.narrowed(rows, segments)),
            )
        self.features.remember(name, stream.places(chosen), stream.take(chosen))
        return stream

    def _most_moved(
        self, stream: Stream, name: tuple[str, int], chosen: Parts, parts: Sequence[PlannedPart]
    ) -> tuple[Tensor, list[int]]:
        """The rows that go on, and how many of each segment they are."""
        moved_T = _relative_change(stream.take(chosen), self.features.recall(name, stream.places(chosen)))
        kept, lengths = [], []
        start = seen = 0
        for number, part in enumerate(parts):
            members = stream.members((number,))
            counts = part.selection if number in chosen else [(len(each.positions), 0) for each in members]
            for segment, (always, count) in zip(members, counts, strict=True):
                rows = len(segment.positions)
                kept.append(torch.arange(start, start + always, device=moved_T.device))
                if count:
                    competing_T = moved_T[seen + always : seen + rows]
                    kept.append(start + always + competing_T.topk(count).indices.sort().values)
                lengths.append(always + count)
                start += rows
                seen += rows if number in chosen else 0
        return torch.cat(kept), lengths

    def _movement(self, stream: Stream, layer: int, work: LayerWork) -> Tensor:
        """How far a layer's input has moved, row by row; the reference is renewed where it computes."""
        name = ("input", layer)
        now_TD = stream.take(work.measures)
        moved_T = _relative_change(now_TD, self.features.recall(name, stream.places(work.measures)))
        if work.renews:
            self.features.remember(name, stream.places(work.renews), stream.take(work.renews))
        return moved_T

    @staticmethod
    def _drift(stream: Stream, measured: Parts, moved_LT: list[Tensor]) -> Tensor | None:
        """The mean movement of each measured request in each layer."""
        if not moved_LT:
            return None
        lengths = [len(segment.positions) for segment in stream.members(measured)]
        return torch.stack([part.mean(dim=1) for part in torch.split(torch.stack(moved_LT), lengths, dim=1)])

    def first_bad_layer(self, tokens: Sequence[int], segments: Sequence[Segment]) -> str | None:
        """Run the rows again with a look at every branch; name the first that is not finite."""
        x_TD, frame = self.open(tokens, segments)
        if not _finite(x_TD):
            return "the embedding"
        for index in range(len(self.transformer.layers)):
            x_TD += self.transformer.attention(index, x_TD, frame)
            if not _finite(x_TD):
                return f"the attention of layer {index}"
            x_TD += self.transformer.mlp(index, x_TD, frame)
            if not _finite(x_TD):
                return f"the MLP of layer {index}"
        return None

    def open(self, tokens: Sequence[int], segments: Sequence[Segment]) -> tuple[Tensor, Frame]:
        """The first state of a forward's stream, and what its layers share."""
        return self.transformer.embed(upload(tokens, self.transformer.device)), self.frame(segments)

    def frame(self, segments: Sequence[Segment]) -> Frame:
        """What the layers share that run on these segments; the last ones are kept, but not those of prompts."""
        if any(segment.stair for segment in segments):
            return self._frame(self._geometry(segments))
        key = tuple(segments)
        if key in self._frames:
            self._frames.move_to_end(key)
            return self._frames[key]
        frame = self._frame(self._geometry(segments))
        self._frames[key] = frame
        if len(self._frames) > KEPT_FRAMES:
            self._frames.popitem(last=False)
        return frame

    def _kept(self, _: Places, segments: Sequence[Segment]) -> Frame:
        return self.frame(segments)

    def _geometry(self, segments: Sequence[Segment]) -> Geometry:
        return Geometry(segments, self.cache, self.transformer.dtype, self.transformer.device)

    def _frame(self, geometry: Geometry) -> Frame:
        before = self.scratch.grown
        frame = Frame(self.transformer.config, self.cache, geometry, self.rope, self.scratch)
        if self.scratch.grown > before:
            # The kept frames would keep the outgrown buffers.
            self._frames.clear()
        return frame


def not_finite_error(where: str | None, dtype: torch.dtype) -> UnmaskError:
    """The sentence for activations that overflowed or were never numbers."""
    place = where or "the head"
    return UnmaskError(
        f"Activations are not finite from {place} on ({str(dtype).removeprefix('torch.')}); "
        "check the weights, or use a wider dtype such as bfloat16 or float32."
    )


def _relative_change(now_TD: Tensor, then_TD: Tensor) -> Tensor:
    """Length of the change over length of the old value, row by row, in fp32."""
    then = then_TD.float()
    change_T: Tensor = torch.linalg.vector_norm(now_TD.float() - then, dim=-1)
    length_T: Tensor = torch.linalg.vector_norm(then, dim=-1)
    return change_T / length_T.clamp_(min=1e-12)


def _finite(x_TD: Tensor) -> bool:
    """Whether values and their squares, which norms need, can be told apart from infinity."""
    return bool(torch.isfinite(x_TD.float().square().sum(dim=-1)).all())
