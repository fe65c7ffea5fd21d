"""The published block-diffusion sampler, written plainly, as the yardstick of `decode.py`.

Decodes a batch as SPEC section 3 tells it: one prefill of the blocks that all rows have in common, then
block by block for the whole batch together, a mask built for every forward, logits and softmax of all
fed rows over the full vocabulary, one commit a block, finished rows dropped at the end of a block. The
accidents Q1, Q2, Q6 and Q8 are mended as Unmask mends them, since they change tokens; what only costs
time stays (Q7, Q13, Q14, Q15).

What is comparable with an engine whose rows are independent: every row of a batch WITHOUT the block
cache (all forwards are full-block ones, and no row ever looks at another), and a single row with or
without it. With the block cache on and more than one row the published refresh rule looks at all rows
(Q4), so tokens depend on the company: such a batch is decoded as published, but proves nothing.

Published budgets are whole blocks (`floor(max_new / S)`); here the smallest one is taken that returns
the tokens wanted, and the ids are cut to `max_new_tokens` or after the first stop token.

Shape legend: as in reference_network.py; S block, s sub-block, C columns of a row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference_network import BlockCache, GrowingCache, ReferenceNetwork


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to decode; greedy only."""

    threshold: float = 0.9
    block_size: int = 32
    sub_block_size: int = 8
    block_cache: bool = True
    stop_tokens: tuple[int, ...] = ()


@dataclass
class Work:
    """What was fed to the network, by kind of forward."""

    forwards: Counter[str] = field(default_factory=Counter)
    """Calls of the network."""
    steps: Counter[str] = field(default_factory=Counter)
    """The same, with a call for B rows of the batch counted B times."""
    tokens: Counter[str] = field(default_factory=Counter)
    """Tokens fed."""


@torch.inference_mode()
def decode(
    network: ReferenceNetwork,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    settings: Settings,
) -> tuple[list[list[int]], Work]:
    """Return the new ids of every prompt (one limit a prompt) and the work it took."""
    batch = _Batch(network, prompts, max_new_tokens, settings)
    size, shortest = settings.block_size, min(map(len, prompts))
    batch.prefill(shortest)
    for start in range(shortest // size * size, batch.end, size):
        batch.denoise(start)
        finished_B = batch.finished(start + size)
        batch.store(finished_B)
        if finished_B.all():
            break
        batch.commit(start)
        batch.drop(finished_B)
    batch.store(torch.ones(len(batch.rows), dtype=torch.bool))
    return [
        _cut(batch.results[row], max_new_tokens[row], settings) for row in range(len(prompts))
    ], batch.work


class _Batch:
    """The state of the rows that are still being decoded."""

    def __init__(
        self,
        network: ReferenceNetwork,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: Sequence[int],
        settings: Settings,
    ) -> None:
        size = settings.block_size
        wanted = [len(prompt) + limit for prompt, limit in zip(prompts, max_new_tokens, strict=True)]
        self.network, self.settings = network, settings
        self.mask_token: int = network.config["mask_token_id"]
        self.end = max(-(-(columns - 1) // size) * size for columns in wanted)
        """Column behind the last block; the last commit's token lies on it."""
        self.tokens_BC = torch.full((len(prompts), self.end + 1), self.mask_token)
        for row, prompt in enumerate(prompts):
            self.tokens_BC[row, : len(prompt)] = torch.tensor(prompt)
        self.lengths_B = torch.tensor([len(prompt) for prompt in prompts])
        self.rows = list(range(len(prompts)))
        self.cache = GrowingCache()
        self.results: dict[int, list[int]] = {}
        self.work = Work()

    def prefill(self, shortest: int) -> None:
        """Push the whole blocks of the shortest prompt through, under a block-causal mask."""
        stop = shortest // self.settings.block_size * self.settings.block_size
        if stop:
            self._hand_over(stop, self._forward("prefill", slice(0, stop), stop, self.cache))

    def denoise(self, start: int) -> None:
        """Unmask one block of all rows, sub-block by sub-block."""
        size, step, cache = self.settings.block_size, self.settings.sub_block_size, None
        for first in range(start, start + size, step):
            window = slice(first, first + step)
            while (self.tokens_BC[:, window] == self.mask_token).any():
                if cache is None or not self.settings.block_cache or self._masked(first):
                    cache = BlockCache(self.cache)
                    logits_BTV = self._forward("block", slice(start, start + size), start + size, cache)
                    self._unmask(window, first - start, logits_BTV)
                else:
                    cache.offset = first - start
                    self._unmask(window, 0, self._forward("sub", window, start + size, cache))

    def finished(self, stop: int) -> Tensor:
        """Tell which rows have a stop token among their new columns."""
        tokens_BC = self.tokens_BC[:, :stop]
        new_BC = torch.arange(stop) >= self.lengths_B[:, None]
        return (torch.isin(tokens_BC, torch.tensor(self.settings.stop_tokens)) & new_BC).any(dim=1)

    def commit(self, start: int) -> None:
        """Feed the final tokens of a block once more; its last logits give the next block's first token."""
        stop = start + self.settings.block_size
        self._hand_over(stop, self._forward("commit", slice(start, stop), stop, self.cache))

    def store(self, leaving_B: Tensor) -> None:
        """Keep the new tokens of rows that leave."""
        for index in leaving_B.nonzero().flatten().tolist():
            self.results[self.rows[index]] = self.tokens_BC[index, self.lengths_B[index] :].tolist()

    def drop(self, finished_B: Tensor) -> None:
        """Take finished rows out of the batch."""
        if finished_B.any():
            staying_B = ~finished_B
            self.tokens_BC, self.lengths_B = self.tokens_BC[staying_B], self.lengths_B[staying_B]
            self.cache.keep(staying_B)
            self.rows = [row for row, done in zip(self.rows, finished_B.tolist(), strict=True) if not done]

    def _masked(self, column: int) -> bool:
        return bool((self.tokens_BC[:, column] == self.mask_token).any())

    def _hand_over(self, column: int, logits_BTV: Tensor) -> None:
        """Write the token that follows the last one fed, where it is not part of the prompt."""
        following_B = logits_BTV[:, -1].argmax(dim=-1)
        self.tokens_BC[:, column] = torch.where(
            self.lengths_B <= column, following_B, self.tokens_BC[:, column]
        )

    def _forward(self, kind: str, fed: slice, visible: int, cache: GrowingCache | BlockCache) -> Tensor:
        size = self.settings.block_size
        positions_T = torch.arange(fed.start, fed.stop)
        mask_TL = positions_T[:, None] // size >= torch.arange(visible) // size
        tokens_BT = self.tokens_BC[:, fed]
        self.work.forwards[kind] += 1
        self.work.steps[kind] += tokens_BT.shape[0]
        self.work.tokens[kind] += tokens_BT.numel()
        logits_BTV = self.network(tokens_BT, positions_T, mask_TL[None, None], cache)
        logits_BTV[..., self.mask_token] = -torch.inf
        return logits_BTV

    def _unmask(self, window: slice, offset: int, logits_BTV: Tensor) -> None:
        """Write the confident candidates of a sub-block that lies `offset` tokens into the fed ones."""
        shifted_BTV = torch.cat([logits_BTV[:, :1], logits_BTV[:, :-1]], dim=1)
        confidence_BT, candidate_BT = torch.softmax(shifted_BTV, dim=-1).max(dim=-1)
        part = slice(offset, offset + self.settings.sub_block_size)
        confidence_Bs, candidate_Bs = confidence_BT[:, part], candidate_BT[:, part]
        tokens_Bs = self.tokens_BC[:, window]
        masked_Bs = tokens_Bs == self.mask_token
        best_B1 = confidence_Bs.masked_fill(~masked_Bs, -1.0).argmax(dim=1, keepdim=True)
        chosen_Bs = (confidence_Bs > self.settings.threshold).scatter(1, best_B1, True) & masked_Bs
        self.tokens_BC[:, window] = torch.where(chosen_Bs, candidate_Bs, tokens_Bs)


def _cut(ids: list[int], limit: int, settings: Settings) -> list[int]:
    """Cut after the limit or after the first stop token."""
    stops = [place for place, token in enumerate(ids[:limit]) if token in settings.stop_tokens]
    return ids[: stops[0] + 1] if stops else ids[:limit]
