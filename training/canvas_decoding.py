"""The decoder that watches training on canvases: threshold decoding of sub-blocks, every forward over all columns.

It is not the engine: no caches, no policies, no sampling.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.canvas import CanvasLayout
from training.network import Network


@torch.no_grad()
def decode_canvas(
    network: Network,
    prompts: list[list[int]],
    *,
    mask: int,
    stop: int,
    threshold: float = 0.9,
    columns: int = 128,
    sub_block: int = 16,
) -> list[list[int]]:
    """Decode all prompts greedily on canvases with `columns` for a reply; returns it up to and with the stop token."""
    lengths = torch.tensor([len(prompt) + columns for prompt in prompts])
    tokens = torch.full((len(prompts), int(lengths.max())), mask)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    done = torch.zeros(len(prompts), dtype=torch.bool)
    for low in range(0, columns, sub_block):
        places = (lengths - columns + low)[:, None] + torch.arange(min(sub_block, columns - low))
        while True:
            rows = ((tokens.gather(1, places) == mask).any(1) & ~done).nonzero()[:, 0]
            if not len(rows):
                break
            written = _step(network, tokens[rows], lengths[rows], places[rows], mask, threshold)
            tokens[rows] = written
        done |= (tokens.gather(1, places) == stop).any(1)
    replies = [row[len(p) : len(p) + columns].tolist() for row, p in zip(tokens, prompts, strict=True)]
    return [reply[: reply.index(stop) + 1] if stop in reply else reply for reply in replies]


def _step(
    network: Network, tokens: Tensor, lengths: Tensor, places: Tensor, mask: int, threshold: float
) -> Tensor:
    """Write every candidate of a sub-block above the threshold, and always the most confident one."""
    width = int(lengths.max())
    layout = CanvasLayout(width=width, lengths=tuple(lengths.tolist()))
    hidden = network(tokens[:, :width], layout.positions(), layout.attend)
    each = torch.arange(len(tokens))[:, None]
    scores = network.logits(hidden[each, places])
    scores[..., mask] = -torch.inf
    confidence, candidate = scores.softmax(-1).max(-1)
    current = tokens.gather(1, places)
    masked = current == mask
    confidence = confidence.masked_fill(~masked, -1.0)
    take = (confidence >= threshold) & masked
    take[each[:, 0], confidence.argmax(1)] = True
    return tokens.scatter(1, places, torch.where(take, candidate, current))
