"""The published samplers of LLaDA and Dream, written plainly, as the yardstick of `canvas.py`.

Decodes as users run them (Fast-dLLM's code for both families), in fp32: a whole forward a step without a cache; with
one, a whole forward when a block begins, then forwards of the block and what follows it (`prefix`: keys concatenated)
or of the block alone (`dual`: keys overwritten in place). Logits of all rows fed; LLaDA's confidences are a softmax in
float64 over all of them, Dream's one in the logits' dtype over the rows that are masked. What the published code does
besides is left out, which favours the yardstick: LLaDA's keys are kept rotated here and not rotated again at every
step, and nothing is sampled from the logits that open a block but a token.

Rows of a LLaDA batch are padded on the left with the padding token, and pads are seen and counted as positions, as
published: answers depend on the company then. Dream's samplers with blocks take one row.

Shape legend: as in reference_network.py; C columns of a row, N candidates.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_network import Cache, GrowingCache, ReferenceNetwork

Forwards = Counter[tuple[str, int]]
"""Calls of the network by kind and rows fed of one request."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to decode, in the publishers' words; greedy only. Steps count over all blocks."""

    new_tokens: int
    block_length: int | None = None
    """None: the whole answer."""
    cache: str = "none"
    steps: int | None = None
    threshold: float | None = None
    factor: float | None = None
    alg: str = "confidence_threshold"
    """Of Dream."""
    eps: float = 1e-3

    @property
    def block(self) -> int:
        """Positions of a block."""
        return self.block_length or self.new_tokens

    @property
    def steps_a_block(self) -> int:
        """Steps that a block is planned for."""
        return (self.steps or self.new_tokens) // (self.new_tokens // self.block)


class PrefixCache:
    """Keys before the block, as the last whole forward left them."""

    def __init__(self, whole: GrowingCache, stop: int) -> None:
        self.keys = {layer: keys[:, :, :stop] for layer, keys in whole.keys.items()}
        self.values = {layer: values[:, :, :stop] for layer, values in whole.values.items()}

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:
        """Put the fed ones behind them."""
        return torch.cat([self.keys[layer], k_BKTd], dim=2), torch.cat([self.values[layer], v_BKTd], dim=2)


class DualCache:
    """Keys of the whole canvas, those of the block overwritten."""

    def __init__(self, whole: GrowingCache, block: slice) -> None:
        self.whole, self.block = whole, block

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:
        """Overwrite the block's."""
        keys, values = self.whole.keys[layer], self.whole.values[layer]
        keys[:, :, self.block], values[:, :, self.block] = k_BKTd, v_BKTd
        return keys, values


class NoCache:
    """Keys of the tokens fed."""

    def update(self, layer: int, k_BKTd: Tensor, v_BKTd: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Keep nothing."""
        return k_BKTd, v_BKTd


class _Canvas:
    """The tokens of a batch, and the forwards over them."""

    def __init__(
        self, network: ReferenceNetwork, prompts: Sequence[Sequence[int]], settings: Settings
    ) -> None:
        self.network, self.settings = network, settings
        self.mask_token: int = network.config["mask_token_id"]
        self.begin = max(map(len, prompts))
        self.end = self.begin + settings.new_tokens
        self.tokens_BC = torch.full((len(prompts), self.end), self.mask_token)
        self.tokens_BC[:, : self.begin] = network.config["pad_token_id"]
        for row, prompt in enumerate(prompts):
            self.tokens_BC[row, self.begin - len(prompt) : self.begin] = torch.tensor(prompt)
        self.forwards: Forwards = Counter()
        self.kept: Cache = NoCache()

    def blocks(self) -> list[slice]:
        """The blocks of the answer."""
        size = self.settings.block
        return [slice(start, start + size) for start in range(self.begin, self.end, size)]

    def masked(self, columns: slice) -> Tensor:
        """Which columns are still masked."""
        return self.tokens_BC[:, columns] == self.mask_token

    def whole(self, block: slice) -> Tensor:
        """Logits of a forward of the canvas, whose keys are kept as the cache says."""
        if self.settings.cache == "none":
            return self._forward("full", slice(0, self.end), NoCache())
        cache = GrowingCache()
        logits_BTV = self._forward("full", slice(0, self.end), cache)
        prefix = self.settings.cache == "prefix"
        self.kept = PrefixCache(cache, block.start) if prefix else DualCache(cache, block)
        return logits_BTV

    def later(self, block: slice) -> Tensor:
        """Logits of a forward on kept keys, from the block's first column on."""
        stop = self.end if self.settings.cache == "prefix" else block.stop
        return self._forward(self.settings.cache, slice(block.start, stop), self.kept)

    def _forward(self, kind: str, fed: slice, cache: Cache) -> Tensor:
        positions_T = torch.arange(fed.start, fed.stop)
        self.forwards[kind, len(positions_T)] += 1
        logits_BTV: Tensor = self.network(self.tokens_BC[:, fed], positions_T, None, cache)
        logits_BTV[..., self.mask_token] = -torch.inf
        return logits_BTV

    def answers(self) -> list[list[int]]:
        """The new tokens of every row."""
        answers: list[list[int]] = self.tokens_BC[:, self.begin :].tolist()
        return answers


@torch.inference_mode()
def decode_llada(
    network: ReferenceNetwork, prompts: Sequence[Sequence[int]], settings: Settings
) -> tuple[list[list[int]], Forwards]:
    """Return the new ids of every prompt and the forwards it took."""
    canvas = _Canvas(network, prompts, settings)
    for block in canvas.blocks():
        per_block, step = settings.steps_a_block, 0
        while canvas.masked(block).any():
            if step == 0 or settings.cache == "none":
                logits_BTV, first = canvas.whole(block), 0
            else:
                logits_BTV, first = canvas.later(block), block.start
            tokens_BT = logits_BTV.argmax(dim=-1)
            shares_BTV = logits_BTV.double().softmax(dim=-1)
            confidence_BT = shares_BTV.gather(-1, tokens_BT[..., None])[..., 0]
            quota = max(1, settings.block // per_block + (step < settings.block % per_block))
            inside = slice(block.start - first, block.stop - first)
            masked_Bs = canvas.masked(block)
            for row in range(len(prompts)):
                confidence_s = confidence_BT[row, inside].masked_fill(~masked_Bs[row], -torch.inf)
                for place in _most_confident(confidence_s, quota, settings):
                    canvas.tokens_BC[row, block.start + place] = tokens_BT[row, inside][place]
            step += 1
    return canvas.answers(), canvas.forwards


def _most_confident(confidence_s: Tensor, quota: int, settings: Settings) -> list[int]:
    """Places of a block that a step writes; places that are known have no confidence."""
    ranked, order = confidence_s.sort(descending=True, stable=True)
    left = int((ranked > -torch.inf).sum())
    if settings.factor is not None:
        asked = 1 - settings.factor / torch.arange(2, left + 2)
        fails = (ranked[1:left] < asked[1:left]).nonzero()
        passed = 1 + int(fails[0]) if len(fails) else left
        count = left if passed >= left - 1 else passed
    elif settings.threshold is not None:
        count = max(1, int((ranked >= settings.threshold).sum()))
    else:
        count = quota
    return order[: min(count, left)].tolist()


@torch.inference_mode()
def decode_dream(
    network: ReferenceNetwork, prompt: Sequence[int], settings: Settings
) -> tuple[list[int], Forwards]:
    """Return the new ids of a prompt and the forwards it took."""
    canvas = _Canvas(network, [prompt], settings)
    if settings.cache == "none":
        _dream_plain(canvas)
    else:
        for block in canvas.blocks():
            _dream_block(canvas, block)
    return canvas.answers()[0], canvas.forwards


def _dream_plain(canvas: _Canvas) -> None:
    settings, answer = canvas.settings, slice(canvas.begin, canvas.end)
    steps = settings.steps or settings.new_tokens
    share, left, step = settings.new_tokens // steps, 0, 0
    while step < steps:
        places, confidence_N, tokens_N = _candidates(canvas, canvas.whole(answer), 0, answer)
        if settings.alg == "confidence_threshold":
            order = confidence_N.argsort(descending=True, stable=True)[: share + left]
            kept = confidence_N[order] >= (settings.threshold or 0.0)
            kept[0] = True
            left = int((~kept).sum())
            order = order[kept]
            if step == steps - 1 and left:
                share, steps = 0, steps + 1
        else:
            order = confidence_N.argsort(descending=True, stable=True)
            order = order[: _due(len(places), step, steps, settings.eps)]
        canvas.tokens_BC[0, places[order]] = tokens_N[order]
        step += 1


def _dream_block(canvas: _Canvas, block: slice) -> None:
    opening_TV = _shifted(canvas.whole(block))[0]
    canvas.tokens_BC[0, block.start] = opening_TV.argmax(dim=-1)[block.start]
    step = 1
    while canvas.masked(block).any():
        places, confidence_N, tokens_N = _candidates(canvas, canvas.later(block), block.start, block)
        order = confidence_N.argsort(descending=True, stable=True)
        if canvas.settings.alg == "confidence_threshold":
            sure = confidence_N >= (canvas.settings.threshold or 0.0)
            order = order[: max(1, int(sure.sum()))]
        else:
            order = order[: _due(len(places), step, canvas.settings.steps_a_block, canvas.settings.eps)]
        canvas.tokens_BC[0, places[order]] = tokens_N[order]
        step += 1


def _shifted(logits_BTV: Tensor) -> Tensor:
    """Logits in the row of the token that they predict."""
    return torch.cat([logits_BTV[:, :1], logits_BTV[:, :-1]], dim=1)


def _candidates(
    canvas: _Canvas, logits_BTV: Tensor, first: int, columns: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """Masked columns, their confidences and their tokens."""
    places_N = columns.start + canvas.masked(columns)[0].nonzero()[:, 0]
    shares_NV = _shifted(logits_BTV)[0, places_N - first].softmax(dim=-1)
    best_N, tokens_N = shares_NV.max(dim=-1)
    if canvas.settings.alg == "entropy":
        return places_N, (shares_NV * (shares_NV + 1e-10).log()).sum(dim=-1), tokens_N
    if canvas.settings.alg == "topk_margin":
        two_N2 = shares_NV.topk(2, dim=-1).values
        return places_N, two_N2[:, 0] - two_N2[:, 1], tokens_N
    return places_N, best_N, tokens_N


def _due(masked: int, step: int, steps: int, eps: float) -> int:
    """How many of the masked positions a planned step writes."""
    if step >= steps - 1:
        return masked
    times = torch.linspace(1, eps, steps + 1)
    return int(masked * (1 - times[step + 1] / times[step]))
