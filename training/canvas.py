"""Training in LLaDA's manner: prompt and reply lie on one canvas, everything sees everything, nothing is shifted.

The canvas is longer than the reply; behind the reply's stop token it is filled with end-of-text tokens, which are
learned too. A canvas that a short reply fills to its last token is what the scoring of choices shows a model.
"""

from __future__ import annotations

import dataclasses
import random

import torch
import torch.nn.functional as F
from torch import Tensor

from training.encoding import Encoded
from training.mask_states import State


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CanvasConfig:
    """How long canvases are, what is masked on them, and what counts how much."""

    longest: int = 160
    """Columns for a reply at most, unless the reply itself is longer."""
    step: int = 8
    """Columns for a reply are a multiple of this, except on a tight canvas."""
    bucket: int = 32
    """Canvases are padded to a multiple of this, so that rows of about one length share a batch."""
    tight: float = 0.5
    """Share of the short replies whose canvas ends with them, without a stop token."""
    short: int = 32
    sub_blocks: tuple[int, ...] = (8, 16, 32)
    """Sizes of the sub-blocks whose states are drawn."""
    aligned: float = 0.75
    """Share of states that decoding meets; the others mask at random, as published."""
    later_weight: float = 0.1
    fill_weight: float = 0.2
    """What an end-of-text token behind the stop token counts beside a token of the reply."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CanvasLayout:
    """Rows of up to `width` columns; each column sees all columns of its own canvas."""

    width: int
    lengths: tuple[int, ...] = ()

    @property
    def columns(self) -> int:
        """All columns of a row."""
        return self.width

    def positions(self) -> Tensor:
        """The position of every column in its sequence."""
        return torch.arange(self.width)

    def attend(self, _layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention under this layout; the query heads of a group are stacked as further queries."""
        rows, heads, columns, size = q.shape
        lengths = torch.tensor(self.lengths, device=q.device)
        seen = torch.arange(columns, device=q.device)[None, :] < lengths[:, None]
        grouped = q.reshape(rows, k.shape[1], -1, size)
        mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=seen[:, None, None, :])
        return mixed.reshape(rows, heads, columns, size)


def lay_out(example: Encoded, config: CanvasConfig, fill: int, rng: random.Random) -> Encoded:
    """The example on a canvas of a drawn length. A drill has its own length and no stop token."""
    length = len(example.ids)
    reply = length - example.given
    if example.drill:
        return example
    if reply <= config.short and rng.random() < config.tight:
        return dataclasses.replace(
            example, ids=example.ids[:-1], learned=example.learned[:-1], late=example.late[:-1]
        )
    least = -(-reply // config.step)
    steps = rng.randint(least, max(least, config.longest // config.step))
    free = example.given + steps * config.step - length
    return dataclasses.replace(
        example,
        ids=example.ids + (fill,) * free,
        learned=example.learned + (True,) * free,
        late=example.late + (False,) * free,
    )


def canvas_layout(canvas: Encoded, config: CanvasConfig) -> CanvasLayout:
    """The layout of batches that a canvas belongs to."""
    return CanvasLayout(width=-(-len(canvas.ids) // config.bucket) * config.bucket)


def draw_canvas_state(canvas: Encoded, config: CanvasConfig, fill: int, rng: random.Random) -> State:
    """Which positions of a canvas are masked, and what their predictions count."""
    if canvas.drill:
        return _drill_state(canvas, rng)
    size = rng.choice(config.sub_blocks)
    if rng.random() < config.aligned:
        state = _aligned_state(canvas, size, config.later_weight, fill, rng)
    else:
        state = _random_state(canvas, size, rng)
    return {
        position: weight * (config.fill_weight if canvas.ids[position] == fill else 1.0)
        for position, weight in state.items()
    }


def _drill_state(canvas: Encoded, rng: random.Random) -> State:
    """Results are masked whole, most of them at once: they do not depend on each other."""
    share, state, hidden, previous = rng.uniform(0.5, 1.0), {}, False, False
    for position, learned in enumerate(canvas.learned):
        if learned and not previous:
            hidden = rng.random() < share
        previous = learned
        if learned and hidden:
            state[position] = 1.0
    return state


def _random_state(canvas: Encoded, size: int, rng: random.Random) -> State:
    """Each token is masked with probability t and counts 1/t, in all about as much as a sub-block."""
    places = range(canvas.given, len(canvas.ids))
    share = rng.uniform(0.05, 1.0)
    weight = min(1.0, size / len(places)) / share
    return {position: weight for position in places if rng.random() < share}


def _aligned_state(canvas: Encoded, size: int, later_weight: float, fill: int, rng: random.Random) -> State:
    """A state of decoding: known before a sub-block, masked after it, partly known within it."""
    stop = len(canvas.ids)
    while stop > canvas.given + 1 and canvas.ids[stop - 1] == fill:
        stop -= 1
    sub = rng.randrange(-(-(stop - canvas.given) // size))
    low = canvas.given + sub * size
    high = min(low + size, len(canvas.ids))
    cut = low if rng.random() < 0.4 else rng.randrange(low, min(high, stop))
    reveal = rng.random() if rng.random() < 0.4 else 0.0
    state: State = {}
    for position in range(cut, high):
        easy = not (canvas.late and canvas.late[position])
        if not (easy and position > cut and rng.random() < reveal):
            state[position] = 1.0
    return state | dict.fromkeys(range(high, len(canvas.ids)), later_weight)
