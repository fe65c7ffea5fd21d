"""Watches a decoding at full compute: how far every layer moves between steps, and what replay would cost.

For each denoising step, layer and position of the block it records the relative change since the
position was last fed, and, for each unit of replay, the error that putting back the old value at this
layer alone would make in the layer's output. Nothing is skipped while watching.

Shape legend: L layers, S positions of a block, D hidden, N rows fed.
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
from unmask.engine.forward import Outcome, Workspace
from unmask.engine.prompt import Prompt
from unmask.engine.step_plan import FULL, Kind, StepPlan
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer
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
    """[layer, position]; not a number where the position was not fed or not fed before."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The trace as named arrays; measures are [step, layer, position]."""
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


class WatchingWorkspace(Workspace):
    """Runs every forward in full and keeps what each layer did."""

    def __init__(
        self, transformer: Transformer, slots: int, columns: int, block_size: int, mask_token: int
    ) -> None:
        super().__init__(transformer, slots, columns, block_size)
        self.block_size = block_size
        self.mask_token = mask_token
        self.first_masked = -1
        """The first unknown column of the last rows fed."""
        self.latest: dict[str, NDArray[np.float32]] = {}
        self._block_start = -1
        self._before: dict[str, Tensor] = {}

    def forward(
        self,
        tokens: Sequence[int],
        segments: Sequence[Segment],
        plan: StepPlan = FULL,
        selection: Sequence[tuple[int, int]] = (),
    ) -> Outcome:
        """Run all layers on one request's rows and compare each with its last time."""
        segment = segments[0]
        if len(segments) > 1 or len(segment.columns) > self.block_size:
            return super().forward(tokens, segments, plan, selection)
        if self.mask_token in tokens:
            self.first_masked = segment.columns[tokens.index(self.mask_token)]
        x_TD, frame = self.open(tokens, segments)
        kept: dict[str, list[Tensor]] = {"input": [], "attention": [], "mlp": []}
        for layer in range(len(self.transformer.layers)):
            kept["input"].append(x_TD.clone())
            kept["attention"].append(self.transformer.attention(layer, x_TD, frame))
            x_TD += kept["attention"][-1]
            kept["mlp"].append(self.transformer.mlp(layer, x_TD, frame))
            x_TD += kept["mlp"][-1]
        self._compare(segment, {name: torch.stack(values).float().cpu() for name, values in kept.items()})
        return Outcome(x_TD)

    def _compare(self, segment: Segment, now_LND: dict[str, Tensor]) -> None:
        start = segment.visible - self.block_size
        if start != self._block_start:
            self._block_start, self._before = start, {}
        positions = [column - start for column in segment.columns]
        if not self._before:
            shape = (len(self.transformer.layers), self.block_size, self.transformer.config.hidden_size)
            self._before = {name: torch.full(shape, torch.nan) for name in now_LND}
        then_LND = {name: values[:, positions] for name, values in self._before.items()}
        self.latest = {}
        for name, values_LN in _measured(now_LND, then_LND).items():
            whole = np.full((values_LN.shape[0], self.block_size), np.nan, dtype=np.float32)
            whole[:, positions] = values_LN.numpy()
            self.latest[name] = whole
        for name, values in now_LND.items():
            self._before[name][:, positions] = values


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


class _WatchingEngine(Engine):
    """An engine whose forwards are watched."""

    def workspace(self, slots: int, columns: int, block_size: int) -> Workspace:
        """Allocate buffers that watch."""
        self.watching = WatchingWorkspace(self.transformer, slots, columns, block_size, self.mask_token)
        return self.watching


def probe(engine: Engine, prompts: Sequence[Prompt], decode: DecodeSpec) -> Trace:
    """Decode each prompt alone at full compute and record every denoising step."""
    watched = _WatchingEngine(engine.transformer, engine.mask_token, engine.folder)
    trace = Trace()
    for index, prompt in enumerate(prompts):
        blocks = 0
        steps = 0
        for event in watched.stream([prompt], decode, batch_size=1):
            if not isinstance(event, StepEvent) or event.kind is Kind.PREFILL:
                continue
            if event.kind is Kind.COMMIT:
                blocks, steps = blocks + 1, 0
                continue
            trace.prompt.append(index)
            trace.block.append(blocks)
            trace.step.append(steps)
            trace.kind.append(event.kind.value)
            trace.unmasked.append(len(event.columns))
            trace.leftmost.append(watched.watching.first_masked in event.columns)
            for name, values in watched.watching.latest.items():
                trace.measures[name].append(values)
            steps += 1
    return trace
