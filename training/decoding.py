"""A small batched decoder that only watches training: threshold decoding with full-block forwards and a prefix cache.

It is not the engine: no sub-block cache, no policies, no sampling.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.attention import attend_to_all
from training.network import Network


class PrefixCache:
    """Keys and values of committed blocks, per layer."""

    def __init__(self, layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.writing = False
        self.rows: Tensor | None = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Every column sees the prefix and all columns fed; when writing, the fed ones join the prefix."""
        keys, values = self.keys[layer], self.values[layer]
        if keys is not None and values is not None:
            past = slice(None) if self.rows is None else self.rows
            k, v = torch.cat([keys[past], k], dim=2), torch.cat([values[past], v], dim=2)
        if self.writing:
            self.keys[layer], self.values[layer] = k, v
        return attend_to_all(q, k, v)


@torch.no_grad()
def decode(
    network: Network,
    prompts: list[list[int]],
    *,
    mask: int,
    stop: int,
    threshold: float = 0.9,
    block: int = 32,
    sub_block: int = 8,
    max_blocks: int = 8,
) -> list[list[int]]:
    """Decode all prompts greedily; returns the tokens after each prompt up to and with the stop token."""
    width = block * max_blocks
    tokens = torch.full((len(prompts), width + 1), mask)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    done = torch.zeros(len(prompts), dtype=torch.bool)
    cache = PrefixCache(network.config.layers)
    for start in range(0, width, block):
        span = slice(start, start + block)
        for sub in range(start, start + block, sub_block):
            _denoise(network, cache, tokens, done, span, sub, sub_block, mask, threshold)
            done |= _stopped(tokens, lengths, stop, mask)
        if bool(done.all()):
            break
        cache.writing, cache.rows = True, None
        hidden = network(tokens[:, span], torch.arange(start, start + block), cache.attend)
        cache.writing = False
        scores = network.logits(hidden[:, -1])
        scores[:, mask] = -torch.inf
        following = tokens[:, start + block]
        tokens[:, start + block] = torch.where(following == mask, scores.argmax(-1), following)
        done |= _stopped(tokens, lengths, stop, mask)
    return [_cut(row[length:].tolist(), stop) for row, length in zip(tokens, lengths.tolist(), strict=True)]


def _denoise(
    network: Network,
    cache: PrefixCache,
    tokens: Tensor,
    idle: Tensor,
    span: slice,
    sub: int,
    sub_block: int,
    mask: int,
    threshold: float,
) -> None:
    positions = torch.arange(span.start, span.stop)
    while True:
        current = tokens[:, sub : sub + sub_block]
        rows = ((current == mask).any(1) & ~idle).nonzero()[:, 0]
        if not len(rows):
            return
        cache.rows = rows
        hidden = network(tokens[rows, span], positions, cache.attend)
        low = sub - span.start
        shifted = torch.cat([hidden[:, :1], hidden[:, :-1]], dim=1)[:, low : low + sub_block]
        scores = network.logits(shifted)
        scores[..., mask] = -torch.inf
        confidence, candidate = scores.softmax(-1).max(-1)
        masked = current[rows] == mask
        confidence = confidence.masked_fill(~masked, -1.0)
        take = (confidence > threshold) & masked
        take[torch.arange(len(rows)), confidence.argmax(1)] = True
        tokens[rows, sub : sub + sub_block] = torch.where(take, candidate, current[rows])


def _stopped(tokens: Tensor, lengths: Tensor, stop: int, mask: int) -> Tensor:
    """Rows whose first stop token after the prompt has no mask before it."""
    columns = torch.arange(tokens.shape[1])
    reply = columns[None, :] >= lengths[:, None]
    ended = (tokens == stop) & reply
    first_stop = torch.where(ended.any(1), ended.int().argmax(1), tokens.shape[1])
    open_before = (tokens == mask) & reply & (columns[None, :] < first_stop[:, None])
    return ended.any(1) & ~open_before.any(1)


def _cut(tokens: list[int], stop: int) -> list[int]:
    return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens
