"""Batches of equal shape from the seeded curriculum.

A chunk of steps is a pure function of the seed and its number: rows are drawn, sorted by shape and cut into batches,
so a resumed training meets exactly the batches that an unbroken one would have met.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Final

import torch
from torch import Tensor

from training.attention import StreamLayout
from training.canvas import CanvasConfig, CanvasLayout, canvas_layout, draw_canvas_state, lay_out
from training.curriculum.rows import Mixture, draw_row
from training.encoding import Encoded, Encoder
from training.mask_states import NoiseConfig, State, draw_states

STEPS_PER_CHUNK: Final = 24

_Shape = StreamLayout | CanvasLayout | None
"""What batch mates have in common; None stands for causal training."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Tokens of one step, with the columns whose hidden state predicts a target, and the weights of these."""

    tokens: Tensor
    positions: Tensor
    layout: _Shape
    documents: Tensor | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    weights: Tensor


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class BatchConfig:
    """What batches are made of."""

    columns: int = 3072
    causal_share: float = 0.0
    causal_width: int = 256
    causal_drills: bool = False
    isolated: bool = True
    prompt_weight: float = 0.05
    clean_weight: float = 1.0
    mixture: Mixture = dataclasses.field(default_factory=Mixture)
    noise: NoiseConfig = dataclasses.field(default_factory=NoiseConfig)
    canvas: CanvasConfig | None = None
    """Set: rows are laid out on canvases instead of in blocks, and `noise` plays no part."""


def batches(encoder: Encoder, config: BatchConfig, seed: int, first_step: int) -> Iterator[Batch]:
    """Batches from a step on, without end."""
    chunk, skip = divmod(first_step, STEPS_PER_CHUNK)
    while True:
        yield from islice(_chunk(encoder, config, random.Random(f"{seed}/{chunk}")), skip, STEPS_PER_CHUNK)
        chunk, skip = chunk + 1, 0


def _chunk(encoder: Encoder, config: BatchConfig, rng: random.Random) -> Iterator[Batch]:
    waiting: dict[_Shape, list[Encoded]] = defaultdict(list)
    filled: dict[_Shape, int] = defaultdict(int)
    while True:
        example = encoder.encode(draw_row(rng, config.mixture))
        causal = rng.random() < config.causal_share or (config.causal_drills and example.drill)
        shape: _Shape = None
        if not causal and config.canvas is not None:
            example = lay_out(example, config.canvas, encoder.pad, rng)
            shape = canvas_layout(example, config.canvas)
        elif not causal:
            shape = _layout(example, config)
        waiting[shape].append(example)
        filled[shape] += len(example.ids) if shape is None else shape.columns
        if filled[shape] >= config.columns:
            del filled[shape]
            yield _collate(encoder, config, shape, waiting.pop(shape), rng)


def _layout(example: Encoded, config: BatchConfig) -> StreamLayout:
    size = config.noise.block
    return StreamLayout(block=size, first=example.first_block(size), blocks=example.blocks(size))


def _collate(
    encoder: Encoder, config: BatchConfig, shape: _Shape, examples: list[Encoded], rng: random.Random
) -> Batch:
    if shape is None:
        batch = causal_batch(examples, config.causal_width, encoder.pad, config.prompt_weight)
        return batch if config.isolated else dataclasses.replace(batch, documents=None)
    if isinstance(shape, CanvasLayout):
        assert config.canvas is not None
        drawn = [draw_canvas_state(example, config.canvas, encoder.pad, rng) for example in examples]
        return canvas_batch(examples, drawn, shape, encoder.mask)
    states = [draw_states(example, config.noise, rng) for example in examples]
    return diffusion_batch(examples, states, shape, encoder.mask, config.clean_weight)


class _Targets:
    """Collects what is predicted from where."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.targets: list[int] = []
        self.weights: list[float] = []

    def add(self, row: int, column: int, target: int, weight: float) -> None:
        if weight > 0:
            self.rows.append(row)
            self.columns.append(column)
            self.targets.append(target)
            self.weights.append(weight)

    def batch(self, tokens: Tensor, positions: Tensor, layout: _Shape, documents: Tensor | None) -> Batch:
        return Batch(
            tokens=tokens,
            positions=positions,
            layout=layout,
            documents=documents,
            rows=torch.tensor(self.rows),
            columns=torch.tensor(self.columns),
            targets=torch.tensor(self.targets),
            weights=torch.tensor(self.weights),
        )


def causal_batch(examples: list[Encoded], width: int, pad: int, prompt_weight: float) -> Batch:
    """Next-token prediction on packed rows; prompts count a little, random numbers of drills not at all."""
    packed = list(_packed(examples, width))
    tokens = torch.full((len(packed), width), pad)
    documents = torch.full((len(packed), width), -1)
    found = _Targets()
    for row, members in enumerate(packed):
        start = 0
        for document, example in enumerate(members):
            ids = example.ids[: width - start]
            tokens[row, start : start + len(ids)] = torch.tensor(ids)
            documents[row, start : start + len(ids)] = document
            for position in range(1, len(ids)):
                weight = example.weight if example.learned[position] else 0.0
                if position < example.given and not example.drill:
                    weight = prompt_weight
                found.add(row, start + position - 1, ids[position], weight)
            start += len(ids)
    return found.batch(tokens, torch.arange(width), None, documents)


def _packed(examples: list[Encoded], width: int) -> Iterator[list[Encoded]]:
    """Examples by rows; the one that overflows a row is cut at its end."""
    row: list[Encoded] = []
    for example in examples:
        row.append(example)
        if sum(len(member.ids) for member in row) >= width:
            yield row
            row = []
    if row:
        yield row


def diffusion_batch(
    examples: list[Encoded],
    states: list[tuple[State, State]],
    layout: StreamLayout,
    mask: int,
    clean_weight: float,
) -> Batch:
    """Clean and noised streams. A masked token is predicted one column before it, a block's first by the clean ones."""
    size, clean = layout.block, layout.clean_blocks * layout.block
    tokens = torch.full((len(examples), layout.columns), mask)
    found = _Targets()
    for row, (example, pair) in enumerate(zip(examples, states, strict=True)):
        ids = example.ids
        tokens[row, : min(clean, len(ids))] = torch.tensor(ids[:clean])
        for start in range(max(layout.first, 1) * size, len(ids), size):
            if start >= example.given and example.learned[start]:
                found.add(row, start - 1, ids[start], clean_weight * example.weight)
        for stream, state in enumerate(pair, start=1):
            offset = layout.start(stream, layout.first) - layout.first * size
            shown = [
                mask if position in state else ids[position]
                for position in range(layout.first * size, len(ids))
            ]
            begin = offset + layout.first * size
            tokens[row, begin : begin + len(shown)] = torch.tensor(shown)
            for position, weight in state.items():
                if example.learned[position]:
                    found.add(row, offset + position - 1, ids[position], weight * example.weight)
    return found.batch(tokens, layout.positions(), layout, None)


def canvas_batch(examples: list[Encoded], states: list[State], layout: CanvasLayout, mask: int) -> Batch:
    """Canvases side by side. A masked token is predicted at its own column."""
    tokens = torch.full((len(examples), layout.width), mask)
    found = _Targets()
    for row, (example, state) in enumerate(zip(examples, states, strict=True)):
        shown = [mask if position in state else token for position, token in enumerate(example.ids)]
        tokens[row, : len(shown)] = torch.tensor(shown)
        for position, weight in state.items():
            if example.learned[position]:
                found.add(row, position, example.ids[position], weight * example.weight)
    lengths = tuple(len(example.ids) for example in examples)
    filled = dataclasses.replace(layout, lengths=lengths)
    return found.batch(tokens, layout.positions(), filled, None)
