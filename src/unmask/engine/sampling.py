"""From logits to predictions: the token a position would get and how sure the model is of it.

A draw is a function of the request's seed, the position and the step alone, so it does not depend on
batch mates, their order or the device's generator.

Shape legend: N positions, V vocabulary.
"""

import hashlib
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from unmask.engine.schedule import Piece
from unmask.engine.step_plan import Kind
from unmask.model.device import upload
from unmask.spec.family import ConfidenceName
from unmask.spec.rule import ScoreName

GREEDY = -1.0
"""Stands for "no draw": the position takes its most likely token at any temperature."""
SMALLEST_SHARE = 1e-10
"""Added to probabilities before their logarithm, as published, so that a zero counts as nothing."""
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Predictions:
    """One token and one confidence for each position, on the host."""

    tokens: list[int]
    confidences: list[float]
    scores: Sequence[float] = ()
    """What the unmasking rule reads of each position; empty where that is the confidence."""
    logprobs: Sequence[dict[int, float]] = ()
    """For each position, the log probability of the tokens that were asked for (scoring asks)."""


class LogitsReader(Protocol):
    """Takes from logits what a decoding needs to know."""

    @property
    def sees_the_best(self) -> bool:
        """Whether confidences are those of the most likely tokens."""
        ...

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """Predictions for each piece; the logits are those of all its reads, in order, and may be overwritten."""
        ...


@dataclass(frozen=True, slots=True)
class Sampler:
    """Reads the most likely tokens, or draws."""

    mask_token: int | None
    temperature: float = 0.0
    top_p: float = 1.0
    score: ScoreName = "confidence"
    top_k: int | None = None
    confidence: ConfidenceName = "nucleus"
    """Which shares the confidence in a draw is taken of."""
    filters_greedy: bool = False
    """Whether `top_p` and `top_k` act at temperature 0 too."""
    never: tuple[int, ...] = ()
    """Tokens that are not predicted."""
    last: tuple[int, ...] = ()
    """Tokens of which nothing is sure."""

    @property
    def sees_the_best(self) -> bool:
        """Whether confidences are those of the most likely tokens, of which a uniform one tells of broken weights."""
        return self.temperature == 0 or self.confidence != "plain"

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """One prediction for each position."""
        uniforms = (
            []
            if self.temperature == 0
            else [self._uniform(p, position) for p in pieces for position in p.reads]
        )
        packed = packed_predictions(
            logits_NV,
            self.mask_token,
            uniforms,
            self.temperature,
            self.top_p,
            self.score,
            top_k=self.top_k,
            confidence=self.confidence,
            filters_greedy=self.filters_greedy and (self.top_p < 1 or self.top_k is not None),
            never=self.never,
            last=self.last,
        )
        read, parts, start = to_host(packed, self.score), [], 0
        for piece in pieces:
            part = slice(start, start + len(piece.reads))
            parts.append(Predictions(read.tokens[part], read.confidences[part], read.scores[part]))
            start = part.stop
        return parts

    def _uniform(self, piece: Piece, position: int) -> float:
        if piece.kind in (Kind.COMMIT, Kind.PREFILL) and not piece.sequence.settings.family.draws_next:
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


class Spread(NamedTuple):
    """How the probability of a position lies on its tokens, as weights: the best token has 1, the others are given."""

    others_NV: Tensor
    doubts_N: Tensor
    """Their sum. A confidence is 1 / (1 + doubt); doubts differ where single precision rounds confidences to 1."""

    def measured(self, score: ScoreName) -> Tensor:
        """What a score needs of the others: the largest weight, or the sum of w ln p over them."""
        if score == "margin":
            largest_N: Tensor = self.others_NV.amax(dim=-1)
            return largest_N
        shares_NV = self.others_NV / (1 + self.doubts_N)[:, None]
        sums_N: Tensor = (self.others_NV * (shares_NV + SMALLEST_SHARE).log()).sum(dim=-1)
        return sums_N


def most_likely(logits_NV: Tensor) -> tuple[Tensor, Spread]:
    """The best token of each position; overwrites the logits."""
    best_N1, tokens_N1 = logits_NV.max(dim=-1, keepdim=True)
    weights_NV = logits_NV.sub_(best_N1).exp_()
    # The best token's own weight goes: 1 - 1, or NaN where its logit is not finite.
    weights_NV.scatter_(-1, tokens_N1, -1.0, reduce="add")
    return tokens_N1.squeeze(-1), Spread(weights_NV, weights_NV.sum(dim=-1))


def drawn(
    logits_NV: Tensor,
    uniforms_N: Tensor,
    temperature: float,
    top_p: float,
    top_k: int | None = None,
    confidence: ConfidenceName = "nucleus",
) -> tuple[Tensor, Tensor, Spread]:
    """A token of each position's nucleus, the doubt about it, and how the shares that count are spread."""
    coldest = torch.finfo(torch.float32).tiny
    scaled_NV = (logits_NV - logits_NV.amax(dim=-1, keepdim=True)) / max(temperature, coldest)
    probabilities, tokens = scaled_NV.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    nucleus = probabilities.masked_fill(_cut_off(probabilities, top_p, top_k), 0.0)
    nucleus = nucleus / nucleus.sum(dim=-1, keepdim=True)
    places_N1 = torch.searchsorted(nucleus.cumsum(dim=-1), uniforms_N[:, None], right=True)
    last_N1 = (nucleus > 0).sum(dim=-1, keepdim=True) - 1
    places_N1 = torch.minimum(places_N1, last_N1).clamp_(min=0)
    shares_NV = nucleus if confidence == "nucleus" else probabilities
    if confidence == "plain":
        shares_NV = logits_NV.softmax(dim=-1).gather(-1, tokens)
    others_N = shares_NV.scatter(-1, places_N1, 0.0).sum(dim=-1)
    doubts_N = others_N / shares_NV.gather(-1, places_N1).squeeze(-1)
    others_NV = shares_NV[:, 1:] / shares_NV[:, :1]
    return tokens.gather(-1, places_N1).squeeze(-1), doubts_N, Spread(others_NV, others_NV.sum(dim=-1))


def _cut_off(probabilities_NV: Tensor, top_p: float, top_k: int | None) -> Tensor:
    """Which of the probabilities, given in falling order, no draw may come from."""
    cut_NV = probabilities_NV.cumsum(dim=-1) - probabilities_NV > top_p
    if top_k is not None and top_k < probabilities_NV.shape[-1]:
        cut_NV |= probabilities_NV < probabilities_NV[:, top_k - 1, None]
    return cut_NV


def filtered(logits_NV: Tensor, top_p: float, top_k: int | None) -> Tensor:
    """The logits without those tokens that no draw may come from."""
    probabilities_NV, tokens_NV = logits_NV.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    cut_NV = _cut_off(probabilities_NV, top_p, top_k)
    return logits_NV.masked_fill(cut_NV.scatter(-1, tokens_NV, cut_NV), -torch.inf)


def held_back(
    logits_NV: Tensor, tokens_N: Tensor, doubts_N: Tensor, spread: Spread, last: Sequence[int]
) -> tuple[Tensor, Spread]:
    """Doubts and spread among all tokens but those of `last`, of which nothing is sure."""
    last_L = upload(last, logits_NV.device)
    others_NV = logits_NV.index_fill(-1, last_L, -torch.inf)
    own_N1 = others_NV.gather(-1, tokens_N[:, None])
    weights_NV = (others_NV - own_N1).exp().scatter(-1, tokens_N[:, None], 0.0)
    doubts_N = torch.where(torch.isin(tokens_N, last_L), torch.inf, weights_NV.sum(dim=-1))
    return doubts_N, Spread(spread.others_NV, doubts_N)


def packed_predictions(
    logits_NV: Tensor,
    mask_token: int | None,
    uniforms: Sequence[float],
    temperature: float,
    top_p: float,
    score: ScoreName = "confidence",
    *,
    top_k: int | None = None,
    confidence: ConfidenceName = "nucleus",
    filters_greedy: bool = False,
    never: Sequence[int] = (),
    last: Sequence[int] = (),
) -> Tensor:
    """Predictions as one fp32 tensor, so that one copy brings them to the host: token ids, doubts, parts of a score.

    Token ids below 2**24 are exact in fp32. MASK is no candidate, and no token of `never` is: their logits are minus
    infinity. Tokens of `last` are candidates of which nothing is sure.
    """
    for token in (*(() if mask_token is None else (mask_token,)), *never):
        logits_NV[:, token] = -torch.inf
    if temperature == 0:
        kept_NV = filtered(logits_NV, top_p, top_k) if filters_greedy else logits_NV
        return _greedy(kept_NV, score, last)
    uniforms_N = upload(uniforms, logits_NV.device)
    tokens_N, doubts_N, spread = drawn(
        logits_NV, uniforms_N.clamp(min=0), temperature, top_p, top_k, confidence
    )
    if last:
        doubts_N, spread = held_back(logits_NV, tokens_N, doubts_N, spread, last)
    packed = _rows(tokens_N, doubts_N, spread, score)
    return (
        torch.where(uniforms_N < 0, _greedy(logits_NV, score, ()), packed) if GREEDY in uniforms else packed
    )


def _greedy(logits_NV: Tensor, score: ScoreName, last: Sequence[int]) -> Tensor:
    kept_NV = logits_NV.clone() if last else logits_NV
    tokens_N, spread = most_likely(logits_NV)
    doubts_N = spread.doubts_N
    if last:
        doubts_N, spread = held_back(kept_NV, tokens_N, doubts_N, spread, last)
    return _rows(tokens_N, doubts_N, spread, score)


def _rows(tokens_N: Tensor, doubts_N: Tensor, spread: Spread, score: ScoreName) -> Tensor:
    rows = [tokens_N.to(torch.float32), doubts_N]
    if score != "confidence":
        rows += [spread.doubts_N, spread.measured(score)]
    return torch.stack(rows)


def to_host(packed: Tensor, score: ScoreName = "confidence") -> Predictions:
    """Wait for the device, unpack, and finish in double precision what single precision would round."""
    tokens, doubts, *parts = packed.tolist()
    confidences = [1 / (1 + doubt) for doubt in doubts]
    scores = [SCORES[score](*of_position) for of_position in zip(*parts, strict=True)]
    return Predictions([int(token) for token in tokens], confidences, scores)


def _margin(doubt: float, largest: float) -> float:
    """The lead of the best token's probability over the second."""
    return (1 - largest) / (1 + doubt)


def _negative_entropy(doubt: float, others: float) -> float:
    """The sum of p ln(p + 1e-10) over all tokens."""
    best = 1 / (1 + doubt)
    return best * (others + math.log(best + SMALLEST_SHARE))


SCORES = {"margin": _margin, "entropy": _negative_entropy}
