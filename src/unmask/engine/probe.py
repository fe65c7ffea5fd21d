"""Watches a decoding at full compute: how far every layer moves between steps, and what replay would cost.

For each denoising step, layer and offset in the block it records the relative change since the
position was last fed, and, for each unit of replay, the error that putting back the old value at this
layer alone would make in the layer's output. Nothing is skipped while watching.

Shape legend: L layers, S offsets of a block, D hidden, N rows fed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.engine.prompt import Prompt, as_requests
from unmask.engine.step_plan import Kind
from unmask.errors import UnmaskError
from unmask.model.geometry import Segment
from unmask.spec import DecodeSpec

MEASURES = (
    "drift_input",
    "drift_output",
    "drift_residual",
    "error_output",
    "error_residual",
    "error_attention",
    "error_mlp",
)
COLUMNS = ("prompt", "block", "step", "kind", "unmasked", "leftmost")


@dataclass(slots=True)
class Trace:
    """What a probe recorded; every list has one entry a denoising step."""

    prompt: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    unmasked: list[int] = field(default_factory=list)
    """Positions that the step made known."""
    leftmost: list[bool] = field(default_factory=list)
    """Whether the first unknown position was among them (if not, the next step may need the whole block)."""
    measures: dict[str, list[NDArray[np.float32]]] = field(
        default_factory=lambda: {name: [] for name in MEASURES}
    )
    """[layer, offset]; not a number where the position was not fed or not fed before."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The trace as named arrays; measures are [step, layer, offset]."""
        columns: dict[str, NDArray[Any]] = {name: np.array(getattr(self, name)) for name in COLUMNS}
        return columns | {name: np.stack(values) for name, values in self.measures.items() if values}

    def save(self, path: Path) -> None:
        """Write an .npz file, whole or not at all."""
        partial = path.with_name(f".{path.name}.partial.npz")
        write: Any = np.savez_compressed  # its stub takes every keyword for a flag
        try:
            write(partial, **self.arrays())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


class LayerWatch:
    """The observer of one decoding: compares what each layer did with the last time the position was fed."""

    def __init__(self, width: int, mask_token: int, origin: int | None = None) -> None:
        self.width = width
        """Offsets that are told apart."""
        self.mask_token = mask_token
        self.origin = origin
        """The position of offset 0; None: where the block begins. What lies before it is not compared."""
        self.first_masked = -1
        """The first unknown position of the last rows fed."""
        self.latest: dict[str, NDArray[np.float32]] = {}
        """The measures of the last forward, as [layer, offset]."""
        self._segment: Segment | None = None
        self._seen: dict[str, list[Tensor]] = {}
        self._block_start = -1
        self._before: dict[str, Tensor] = {}

    def begin(self, tokens: Sequence[int], segments: Sequence[Segment]) -> bool:
        """Watch forwards of one block; what a longer prefill does is not compared with anything."""
        segment = segments[0]
        if len(segments) > 1 or (self.origin is None and len(segment.positions) > self.width):
            return False
        if self.mask_token in tokens:
            self.first_masked = segment.positions[tokens.index(self.mask_token)]
        self._segment = segment
        self._seen = {"input": [], "attention": [], "mlp": []}
        return True

    def layer(self, input_TD: Tensor, attention_TD: Tensor, mlp_TD: Tensor) -> None:
        """Keep a layer until the forward is over."""
        self._seen["input"].append(input_TD)
        self._seen["attention"].append(attention_TD)
        self._seen["mlp"].append(mlp_TD)

    def end(self) -> None:
        """Compare all layers with their last time."""
        assert self._segment is not None
        self._compare(
            self._segment, {name: torch.stack(values).float().cpu() for name, values in self._seen.items()}
        )

    def _compare(self, segment: Segment, now_LND: dict[str, Tensor]) -> None:
        start = segment.first if self.origin is None else self.origin
        if start != self._block_start:
            self._block_start, self._before = start, {}
        rows = [row for row, position in enumerate(segment.positions) if position >= start]
        offsets = [segment.positions[row] - start for row in rows]
        if len(rows) < len(segment.positions):
            now_LND = {name: values[:, rows] for name, values in now_LND.items()}
        if not self._before:
            layers, _, width = now_LND["input"].shape
            shape = (layers, self.width, width)
            self._before = {name: torch.full(shape, torch.nan) for name in now_LND}
        then_LND = {name: values[:, offsets] for name, values in self._before.items()}
        self.latest = {}
        for name, values_LN in _measured(now_LND, then_LND).items():
            whole = np.full((values_LN.shape[0], self.width), np.nan, dtype=np.float32)
            whole[:, offsets] = values_LN.numpy()
            self.latest[name] = whole
        for name, values in now_LND.items():
            self._before[name][:, offsets] = values


def _measured(now: dict[str, Tensor], then: dict[str, Tensor]) -> dict[str, Tensor]:
    residual, old_residual = now["attention"] + now["mlp"], then["attention"] + then["mlp"]
    output, old_output = now["input"] + residual, then["input"] + old_residual
    output_size = _length(output)
    return {
        "drift_input": _length(now["input"] - then["input"]) / _length(then["input"]),
        "drift_output": _length(output - old_output) / _length(old_output),
        "drift_residual": _length(residual - old_residual) / _length(old_residual),
        "error_output": _length(output - old_output) / output_size,
        "error_residual": _length(residual - old_residual) / output_size,
        "error_attention": _length(now["attention"] - then["attention"]) / output_size,
        "error_mlp": _length(now["mlp"] - then["mlp"]) / output_size,
    }


def _length(x_LND: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x_LND, dim=-1)
    return length


def probe(engine: Engine, prompts: Sequence[Prompt], decode: DecodeSpec, chat: bool = False) -> Trace:
    """Decode each prompt alone at full compute and record every denoising step.

    Offsets count from the block's start; on a canvas, which is one block, from the start of the answer.
    """
    spec, mask_token = engine.config.decoded(decode), engine.mask_token
    if mask_token is None:
        raise UnmaskError(
            "This checkpoint predicts one token at a time, so there are no denoising steps to compare; probe a "
            "diffusion model."
        )
    trace = Trace()
    requests = as_requests(prompts)
    longest = max((request.max_new_tokens or spec.max_new_tokens for request in requests), default=1)
    for index, prompt in enumerate(requests):
        if spec.block_size is None:
            watch = LayerWatch(longest, mask_token, len(engine.encode(prompt, chat)))
        else:
            watch = LayerWatch(spec.block_size, mask_token)
        blocks = 0
        steps = 0
        for event in engine.stream([prompt], decode, batch_size=1, chat=chat, observer=watch):
            if not isinstance(event, StepEvent) or event.kind is Kind.PREFILL:
                continue
            if event.kind is Kind.COMMIT:
                blocks, steps = blocks + 1, 0
                continue
            trace.prompt.append(index)
            trace.block.append(blocks)
            trace.step.append(steps)
            trace.kind.append(event.kind.value)
            trace.unmasked.append(len(event.positions))
            trace.leftmost.append(watch.first_masked in event.positions)
            for name, values in watch.latest.items():
                trace.measures[name].append(values)
            steps += 1
    return trace
