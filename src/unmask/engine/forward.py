"""The one forward: every pass of every request, baseline or reuse, generation or scoring, goes through it.

Takes flat rows of any mixture of requests that share a plan, returns their final hidden states. It
does what the plan says and nothing else; whether a plan is allowed was checked by the schedule.

Shape legend: T rows, D hidden, B requests (segments), L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unmask.engine.feature_store import FeatureStore, Places
from unmask.engine.step_plan import FULL, Op, Span, StepPlan, Unit, features, spans
from unmask.errors import UnmaskError
from unmask.model.frame import Frame
from unmask.model.geometry import Geometry, Segment
from unmask.model.kv_cache import KVCache
from unmask.model.rotation import RopeTables
from unmask.model.scratch import Scratch
from unmask.model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What a forward leaves for the decoder."""

    hidden_TD: Tensor
    """Final hidden states of the rows that went through every layer, in the order they were fed."""
    drift_BL: Tensor | None = None
    """How far each layer's input had moved since that layer last computed, where the plan asked for it."""


@dataclass(slots=True)
class _Stream:
    """The residual stream on its way up, and where its rows belong."""

    x_TD: Tensor
    frame: Frame
    places: Places


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
        self._last: tuple[Sequence[Segment], Frame] | None = None
        """The frame of the last forward: steps of a block feed the same places again and again."""
        self.features = FeatureStore(transformer, slots, block_size)
        self.observer: Observer | None = None

    def forward(
        self,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        plan: StepPlan = FULL,
        selection: Sequence[tuple[int, int]] = (),
    ) -> ForwardOutput:
        """Push rows through the layers as planned.

        `selection` says for each segment how many of its rows run in any case (they come first) and
        how many of the others may join them by drift; it is empty where all rows run.
        """
        if plan is FULL:
            if self.observer is not None and self.observer.begin(tokens, segments):
                return self._observed(tokens, segments, self.observer)
            x_TD, frame = self.open(tokens, segments)
            for index in range(len(self.transformer.layers)):
                x_TD += self.transformer.attention(index, x_TD, frame)
                x_TD += self.transformer.mlp(index, x_TD, frame)
            return ForwardOutput(x_TD)
        places = self.features.places(segments)
        if plan.replays_everything:
            return ForwardOutput(self.features.recall((Unit.OUTPUT, 0, len(plan.ops)), places))
        return self._planned(_Stream(*self.open(tokens, segments), places), segments, plan, selection)

    def _observed(
        self, tokens: Sequence[int], segments: Sequence[Segment], observer: Observer
    ) -> ForwardOutput:
        """Compute every layer and show it to the observer."""
        x_TD, frame = self.open(tokens, segments)
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

    def _planned(
        self,
        stream: _Stream,
        segments: Sequence[Segment],
        plan: StepPlan,
        selection: Sequence[tuple[int, int]],
    ) -> ForwardOutput:
        layers = len(self.transformer.layers)
        probe_layer = plan.rows.probe_layer if plan.rows else None
        drift: list[Tensor] = []
        for span in spans(plan) if plan.ops else (Span(0, layers, Op.COMPUTE),):
            for part in _cut(span, probe_layer):
                if part.start == probe_layer:
                    stream = self._select_rows(stream, segments, probe_layer, selection)
                if plan.drift:
                    drift.append(self._drift(stream, segments, part))
                self._run(stream, part, plan.unit)
        for name in features(plan, Op.REFRESH):
            if name[0] is Unit.OUTPUT:
                self.features.remember(name, stream.places, stream.x_TD)
        return ForwardOutput(stream.x_TD, torch.stack(drift, dim=1) if drift else None)

    def _run(self, stream: _Stream, span: Span, unit: Unit) -> None:
        """Compute, refresh or replay neighbouring layers on the whole stream."""
        if unit is Unit.RESIDUAL and span.op is not Op.COMPUTE:
            name = (unit, span.start, span.stop)
            if span.op is Op.REPLAY:
                stream.x_TD += self.features.recall(name, stream.places)
                return
            before_TD = stream.x_TD.clone()
            self._compute(stream, span)
            self.features.remember(name, stream.places, stream.x_TD - before_TD)
        elif unit in (Unit.ATTENTION, Unit.MLP) and span.op is not Op.COMPUTE:
            for layer in range(span.start, span.stop):
                stream.x_TD += self._branch(stream, layer, Unit.ATTENTION, span.op, unit)
                stream.x_TD += self._branch(stream, layer, Unit.MLP, span.op, unit)
        else:
            self._compute(stream, span)

    def _compute(self, stream: _Stream, span: Span) -> None:
        for layer in range(span.start, span.stop):
            stream.x_TD += self.transformer.attention(layer, stream.x_TD, stream.frame)
            stream.x_TD += self.transformer.mlp(layer, stream.x_TD, stream.frame)

    def _branch(self, stream: _Stream, layer: int, branch: Unit, op: Op, reused: Unit) -> Tensor:
        """One branch's change of the stream: computed, computed and remembered, or put back."""
        name = (branch, layer, layer + 1)
        if branch is reused and op is Op.REPLAY:
            return self.features.recall(name, stream.places)
        if branch is Unit.ATTENTION:
            change_TD = self.transformer.attention(layer, stream.x_TD, stream.frame)
        else:
            change_TD = self.transformer.mlp(layer, stream.x_TD, stream.frame)
        if branch is reused:
            self.features.remember(name, stream.places, change_TD)
        return change_TD

    def _select_rows(
        self,
        stream: _Stream,
        segments: Sequence[Segment],
        layer: int,
        selection: Sequence[tuple[int, int]],
    ) -> _Stream:
        """Keep the rows that always run and, of the others, those whose input has moved most; remember theirs."""
        name = ("input", layer)
        if any(count for _, count in selection):
            kept_T = self._most_moved(stream, name, segments, selection)
            lengths = [always + count for always, count in selection]
            frame = self._frame(stream.frame.geometry.narrowed(kept_T, lengths))
            assert isinstance(stream.places, Tensor), "rows to choose among are listed, not a range"
            stream = _Stream(stream.x_TD[kept_T], frame, stream.places[kept_T])
        self.features.remember(name, stream.places, stream.x_TD)
        return stream

    def _most_moved(
        self,
        stream: _Stream,
        name: tuple[str, int],
        segments: Sequence[Segment],
        selection: Sequence[tuple[int, int]],
    ) -> Tensor:
        moved_T = _relative_change(stream.x_TD, self.features.recall(name, stream.places))
        kept, start = [], 0
        for segment, (always, count) in zip(segments, selection, strict=True):
            first, stop = start + always, start + len(segment.positions)
            kept.append(torch.arange(start, first, device=moved_T.device))
            if count:
                kept.append(first + moved_T[first:stop].topk(count).indices.sort().values)
            start = stop
        return torch.cat(kept)

    def _drift(self, stream: _Stream, segments: Sequence[Segment], span: Span) -> Tensor:
        """Mean movement of a layer's input for each request; the reference is renewed where it computes."""
        assert span.stop == span.start + 1, "drift is measured layer by layer: plan with merge=False"
        name = ("input", span.start)
        moved_T = _relative_change(stream.x_TD, self.features.recall(name, stream.places))
        if span.op is not Op.REPLAY:
            self.features.remember(name, stream.places, stream.x_TD)
        return torch.stack(
            [part.mean() for part in torch.split(moved_T, [len(segment.positions) for segment in segments])]
        )

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
        transformer = self.transformer
        tokens_T = torch.tensor(tokens).to(transformer.device, non_blocking=True)
        if self._last is None or self._last[0] != segments:
            geometry = Geometry(segments, self.cache, transformer.dtype, transformer.device)
            self._last = segments, self._frame(geometry)
        return transformer.embed(tokens_T), self._last[1]

    def _frame(self, geometry: Geometry) -> Frame:
        return Frame(self.transformer.config, self.cache, geometry, self.rope, self.scratch)


def not_finite_error(where: str | None, dtype: torch.dtype) -> UnmaskError:
    """The sentence for activations that overflowed or were never numbers."""
    place = where or "the head"
    return UnmaskError(
        f"Activations are not finite from {place} on ({str(dtype).removeprefix('torch.')}); "
        "check the weights, or use a wider dtype such as bfloat16 or float32."
    )


def _cut(span: Span, layer: int | None) -> tuple[Span, ...]:
    if layer is None or not span.start < layer < span.stop:
        return (span,)
    return Span(span.start, layer, span.op), Span(layer, span.stop, span.op)


def _relative_change(now_TD: Tensor, then_TD: Tensor) -> Tensor:
    """Length of the change over length of the old value, row by row, in fp32."""
    then = then_TD.float()
    change_T: Tensor = torch.linalg.vector_norm(now_TD.float() - then, dim=-1)
    length_T: Tensor = torch.linalg.vector_norm(then, dim=-1)
    return change_T / length_T.clamp_(min=1e-12)


def _finite(x_TD: Tensor) -> bool:
    """Whether values and their squares, which norms need, can be told apart from infinity."""
    return bool(torch.isfinite(x_TD.float().square().sum(dim=-1)).all())
