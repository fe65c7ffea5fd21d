"""From logits to predictions: the token a position would get and how sure the model is of it.

A draw is a function of the request's seed, the position and the step alone, so it does not depend on
batch mates, their order or the device's generator.

Shape legend: N positions, V vocabulary.
"""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from unmask.engine.schedule import Piece
from unmask.engine.step_plan import Kind

GREEDY = -1.0
"""Stands for "no draw": the position takes its most likely token at any temperature."""
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Predictions:
    """One token and one confidence for each position, on the host."""

    tokens: list[int]
    confidences: list[float]
    logprobs: list[dict[int, float]] = field(default_factory=list)
    """For each position, the log probability of the tokens that were asked for (scoring asks)."""


class LogitsReader(Protocol):
    """Takes from logits what a decoding needs to know."""

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """Predictions for each piece; the logits are those of all its reads, in order, and may be overwritten."""
        ...


@dataclass(frozen=True, slots=True)
class Sampler:
    """Reads the most likely tokens, or draws."""

    mask_token: int
    temperature: float = 0.0
    top_p: float = 1.0

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """One prediction for each position."""
        uniforms = (
            []
            if self.temperature == 0
            else [self._uniform(p, position) for p in pieces for position in p.reads]
        )
        packed = packed_predictions(logits_NV, self.mask_token, uniforms, self.temperature, self.top_p)
        read, parts, start = to_host(packed), [], 0
        for piece in pieces:
            stop = start + len(piece.reads)
            parts.append(Predictions(read.tokens[start:stop], read.confidences[start:stop]))
            start = stop
        return parts

    def _uniform(self, piece: Piece, position: int) -> float:
        if piece.kind in (Kind.COMMIT, Kind.PREFILL):
            return GREEDY
        return uniform(piece.sequence.seed, position, piece.sequence.total_steps)


def request_seed(decode_seed: int, prompt: Sequence[int], repeat: int) -> int:
    """Derive a request's own seed from what it asks, not from where it stands in a batch."""
    content = hashlib.sha256(f"{decode_seed}:{repeat}:".encode())
    content.update(array("q", prompt).tobytes())
    return int.from_bytes(content.digest()[:8], "little")


def uniform(seed: int, position: int, step: int) -> float:
    """A number in [0, 1) that depends on its three arguments only."""
    state = seed
    for word in (position, step):
        state = _mix((state + 0x9E3779B97F4A7C15 * (word + 1)) & _U64)
    return (state >> 40) / (1 << 24)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _U64
    return value ^ (value >> 31)


def most_likely(logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """The best token of each position and its probability; overwrites the logits."""
    best_N1, tokens_N1 = logits_NV.max(dim=-1, keepdim=True)
    confidences = logits_NV.sub_(best_N1).exp_().sum(dim=-1).reciprocal_()
    return tokens_N1.squeeze(-1), confidences


def drawn(logits_NV: Tensor, uniforms_N: Tensor, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """A token of each position's nucleus and its probability within it."""
    coldest = torch.finfo(torch.float32).tiny
    scaled_NV = (logits_NV - logits_NV.amax(dim=-1, keepdim=True)) / max(temperature, coldest)
    probabilities, tokens = scaled_NV.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    before = probabilities.cumsum(dim=-1) - probabilities
    nucleus = probabilities.masked_fill(before > top_p, 0.0)
    nucleus = nucleus / nucleus.sum(dim=-1, keepdim=True)
    places_N1 = torch.searchsorted(nucleus.cumsum(dim=-1), uniforms_N[:, None], right=True)
    last_N1 = (nucleus > 0).sum(dim=-1, keepdim=True) - 1
    places_N1 = torch.minimum(places_N1, last_N1).clamp_(min=0)
    return tokens.gather(-1, places_N1).squeeze(-1), nucleus.gather(-1, places_N1).squeeze(-1)


def packed_predictions(
    logits_NV: Tensor, mask_token: int, uniforms: Sequence[float], temperature: float, top_p: float
) -> Tensor:
    """Predictions as one fp32 tensor of token ids and confidences, so that one copy brings them to the host.

    Token ids below 2**24 are exact in fp32. MASK is no candidate: its logit is minus infinity.
    """
    logits_NV[:, mask_token] = -torch.inf
    if temperature == 0:
        tokens, confidences = most_likely(logits_NV)
    else:
        uniforms_N = torch.tensor(uniforms, dtype=torch.float32).to(logits_NV.device, non_blocking=True)
        drawn_tokens, drawn_confidences = drawn(logits_NV, uniforms_N.clamp(min=0), temperature, top_p)
        best_tokens, best_confidences = most_likely(logits_NV)
        greedy = uniforms_N < 0
        tokens = torch.where(greedy, best_tokens, drawn_tokens)
        confidences = torch.where(greedy, best_confidences, drawn_confidences)
    return torch.stack([tokens.to(torch.float32), confidences])


def to_host(packed: Tensor) -> Predictions:
    """Wait for the device and unpack."""
    tokens, confidences = packed.tolist()
    return Predictions([int(token) for token in tokens], confidences)


def accepted(confidences: Sequence[float], threshold: float) -> list[int]:
    """Indices to unmask: all strictly above the threshold, and the most confident one in any case."""
    best = max(range(len(confidences)), key=confidences.__getitem__)
    return [i for i, confidence in enumerate(confidences) if i == best or confidence > threshold]
