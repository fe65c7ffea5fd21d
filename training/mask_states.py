"""Which positions of a reply are masked in the noised copies, and how much each prediction counts.

Two ways: `published` masks at random and its partner masks the rest; `aligned` draws states that decoding really meets:
sub-blocks before the current one known, later ones masked, the current one partly known. Random masks leave a result
visible that the chain repeats, so on their own they do not teach arithmetic.
"""

from __future__ import annotations

import dataclasses
import random

from training.encoding import Encoded

State = dict[int, float]
"""Masked position -> weight of its prediction in the loss; 0 for masked without loss."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NoiseConfig:
    """Block geometry and the shares of the ways to mask."""

    block: int = 32
    sub_block: int = 8
    aligned: float = 0.75
    later_weight: float = 0.1


def first_maskable(given: int, block_start: int) -> int:
    """The first position of a block that denoising predicts; a block's first token comes from the commit before it."""
    return given if given > block_start else block_start + 1


def draw_states(example: Encoded, config: NoiseConfig, rng: random.Random) -> tuple[State, State]:
    """Draw the states of the two noised copies of an example."""
    first: State = {}
    second: State = {}
    aligned = rng.random() < config.aligned
    for index in range(example.first_block(config.block), example.blocks(config.block)):
        start = first_maskable(example.given, index * config.block)
        stop = min((index + 1) * config.block, len(example.ids))
        if stop <= start:
            continue
        if example.drill:
            pair = _drill_pair(example, start, stop, rng)
        elif aligned:
            pair = _aligned_pair(example, start, stop, config, rng)
        else:
            pair = _published_pair(start, stop, rng)
        first |= pair[0]
        second |= pair[1]
    return first, second


def _published_pair(start: int, stop: int, rng: random.Random) -> tuple[State, State]:
    share = rng.uniform(0.05, 1.0)
    masked = {position for position in range(start, stop) if rng.random() < share}
    rest = set(range(start, stop)) - masked
    return dict.fromkeys(masked, 1.0), dict.fromkeys(rest, 1.0)


def _drill_pair(example: Encoded, start: int, stop: int, rng: random.Random) -> tuple[State, State]:
    pair: tuple[State, State] = ({}, {})
    chosen, previous = 0, False
    for position in range(start, stop):
        if example.learned[position] and not previous:
            chosen = rng.randrange(2)
        previous = example.learned[position]
        if previous:
            pair[chosen][position] = 1.0
    return pair


def _aligned_pair(
    example: Encoded, start: int, stop: int, config: NoiseConfig, rng: random.Random
) -> tuple[State, State]:
    size = config.sub_block
    subs = list(range(start // size, -(-stop // size)))
    picked = rng.sample(subs, 2) if len(subs) > 1 else subs * 2
    one, two = (_aligned_state(example, start, stop, sub, config, rng) for sub in picked)
    return one, two


def _aligned_state(
    example: Encoded,
    start: int,
    stop: int,
    sub: int,
    config: NoiseConfig,
    rng: random.Random,
) -> State:
    low, high = max(start, sub * config.sub_block), min(stop, (sub + 1) * config.sub_block)
    cut = low if rng.random() < 0.4 else rng.randrange(low, high)
    reveal = rng.random() if rng.random() < 0.4 else 0.0
    state: State = {}
    for position in range(cut, high):
        easy = not (example.late and example.late[position])
        if not (easy and position > cut and rng.random() < reveal):
            state[position] = 1.0
    state |= dict.fromkeys(range(high, stop), config.later_weight)
    return state
