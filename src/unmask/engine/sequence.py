"""The state of one sequence: which positions are known, and which forward comes next.

Knows blocks, sub-blocks, caches and stopping, on plain Python integers. It does not know about tensors, batches or
policies. A canvas, on which prompt and answer see each other, is one block whose sub-blocks begin behind the prompt.
"""

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from unmask.cost import Ledger, Sharing
from unmask.engine.ages import Refreshes
from unmask.engine.step_plan import Feature, Kind
from unmask.spec.family import FAST_DLLM_V2, CacheName, Family

NO_TOKEN = -1
"""Stands for an unknown position where there is no mask token; it is never fed."""


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """What all sequences of a decoding share."""

    block_size: int | None
    """None: prompt and answer are one block."""
    sub_block_size: int | None
    """None: the answer is one sub-block."""
    cache: CacheName
    mask_token: int | None
    """What unknown positions are fed as; None where they never are."""
    stop_tokens: frozenset[int]
    family: Family = FAST_DLLM_V2
    refresh_every: int | None = None
    guidance: float = 0.0

    @property
    def guided(self) -> bool:
        """Whether every step is also taken without the prompt, in a second slot."""
        return self.guidance > 0

    @property
    def slots(self) -> int:
        """Slots that one sequence fills."""
        return 2 if self.guided else 1


class SequenceState:
    """One request while it is decoded: its tokens, the block it is in, and its ledger."""

    def __init__(
        self,
        index: int,
        prompt: Sequence[int],
        max_new_tokens: int,
        settings: BlockSettings,
        layers: int,
        seed: int = 0,
        end_reason: str = "length",
    ) -> None:
        self.index = index
        self.seed = seed
        self.settings = settings
        self.prompt_length = len(prompt)
        self.end = len(prompt) + max_new_tokens
        self.reads_until = sys.maxsize
        """No position from this one on is predicted; scoring stops at its targets, a generation nowhere."""
        self.reads_from = sys.maxsize
        """A prefill predicts the positions from this one on, and the one that follows it in any case."""
        self.end_reason = end_reason
        """What it means to have reached `end`."""
        self.ledger = Ledger(layers)
        self.sharing = Sharing()
        self.slot = -1
        self.shadow = -1
        """The slot of the same sequence without its prompt, where there is guidance."""
        self.finish_reason: str | None = None
        canvas = settings.block_size is None
        self.block_size = settings.block_size or self.end
        self.sub_block_size = settings.sub_block_size or self.end
        self.capacity = -(-self.end // self.block_size) * self.block_size
        """Positions whose keys it may write: its blocks, whole."""
        self.start = 0 if canvas else len(prompt) // self.block_size * self.block_size
        """First position of the current block; everything before it is in the cache once prefilled."""
        self.anchor = len(prompt) if canvas else self.start
        """Where the first sub-block of the block begins."""
        self.needs_prefill = self.start > 0
        self.prefilled = 0
        """How much of it was fed by prefills."""
        self.known_until = len(prompt)
        """First position that is not known."""
        self.blocks_done = 0
        self.total_steps = 0
        self.rule_steps = 0
        """Steps of this sub-block as an unmasking rule counts them, idle ones included."""
        self.cached_steps = 0
        """Steps since the last full-block step."""
        self.unknown = NO_TOKEN if settings.mask_token is None else settings.mask_token
        """What stands in `tokens` for a position that is not known."""
        self.tokens = [*prompt, *[self.unknown] * (self.stop - len(prompt))]
        self.sub_block = range(0)
        """Positions of the current sub-block: the one that holds the first unknown position."""
        self._open_block()

    def _open_block(self) -> None:
        """What is known of a block before its first step."""
        self.step = 0
        """Denoising steps taken in this block."""
        self.block_steps = 0
        """Full-block steps among them."""
        self.changed: set[int] = set()
        """Positions of the block whose token is newer than its keys."""
        self.remembered: dict[Feature, Refreshes] = {}
        """For each feature, the steps of this block that refreshed it and the offsets they did it for."""
        self.measured: dict[int, int] = {}
        """For each layer, a bit for every offset of this block whose input to it was remembered."""
        self.drift: tuple[float, ...] = ()
        """For each layer, how far its input had moved when that was last measured in this block."""
        self._open_sub_block()

    @property
    def stop(self) -> int:
        """End of the current block."""
        return self.start + self.block_size

    def source(self, position: int) -> int:
        """The row whose logits predict a position; nothing else knows how far it lies to the left."""
        return position - self.settings.family.shift

    def next_kind(self) -> Kind:
        """The forward that this sequence needs now, whatever its batch mates do."""
        if self.needs_prefill:
            return Kind.PREFILL
        if self.known_until >= self.stop:
            return Kind.COMMIT
        cache, interval = self.settings.cache, self.settings.refresh_every
        if cache == "none" or not self.rule_steps or self.cached_steps + 1 == interval:
            return Kind.BLOCK
        # The row that predicts a sub-block's first position may lie before it, where only a block forward feeds it.
        if self.source(self.known_until) not in self.sub_block:
            return Kind.BLOCK
        return Kind.SUB if cache == "dual" else Kind.TAIL

    @property
    def opens(self) -> bool:
        """Whether the next step only makes ready a sub-block's cache, and writes its first position."""
        settings = self.settings
        return settings.family.refresh_writes_first and settings.cache != "none" and not self.rule_steps

    def positions(self, kind: Kind) -> range:
        """The positions that a forward of this kind feeds (a prefill is fed block by block)."""
        if kind is Kind.SUB:
            return self.sub_block
        if kind is Kind.TAIL:
            return range(self.sub_block.start, self.stop)
        return range(self.start) if kind is Kind.PREFILL else range(self.start, self.stop)

    def masked(self, positions: Sequence[int]) -> list[int]:
        """Those of `positions` that are not known."""
        unknown = self.unknown
        return [position for position in positions if self.tokens[position] == unknown]

    def read_positions(self, kind: Kind) -> list[int]:
        """Positions to be predicted after a forward of this kind; each is read from the row of its `source`."""
        if kind in (Kind.COMMIT, Kind.PREFILL):
            position = self.start if kind is Kind.PREFILL else self.stop
            if (
                self.known_until != position
                or position >= self.reads_until
                or self.source(position) == position
            ):
                return []
            first = min(position, self.reads_from) if kind is Kind.PREFILL else position
            return list(range(first, position + 1))
        sub_block = self.sub_block
        if self.opens:
            return [sub_block.start]
        return self.masked(range(sub_block.start, min(sub_block.stop, self.reads_until)))

    def fed(self, kind: Kind, renewed: Sequence[int]) -> None:
        """Note a forward of this kind, and the positions whose keys it has renewed."""
        if kind is Kind.PREFILL:
            self.needs_prefill = False
            self.prefilled = self.start
        elif kind is Kind.COMMIT:
            self._open_next_block()
        else:
            self.step += 1
            self.total_steps += 1
            self.block_steps += kind is Kind.BLOCK
            self.cached_steps = 0 if kind is Kind.BLOCK else self.cached_steps + 1
            self.rule_steps += 1
            self.changed.difference_update(renewed)

    def write(self, position: int, token: int) -> None:
        """Make a position known."""
        self.tokens[position] = token
        self.changed.add(position)

    def settle(self) -> None:
        """Advance over known positions and finish where the answer is settled."""
        unknown, limit = self.unknown, min(self.stop, self.end)
        while self.known_until < limit and self.tokens[self.known_until] != unknown:
            self.known_until += 1
            if self.tokens[self.known_until - 1] in self.settings.stop_tokens:
                self.finish_reason = "stop"
                return
        if self.known_until >= self.end:
            self.finish_reason = self.end_reason
        elif self.known_until >= self.sub_block.stop:
            self._open_sub_block()

    def cut(self, length: int, reason: str) -> None:
        """Finish with the first `length` new tokens."""
        self.known_until = self.prompt_length + length
        self.finish_reason = reason

    def extend(self, tokens: Sequence[int]) -> None:
        """Let a prompt of blocks of one go on; all of these tokens are predicted, too, unless a prefill has done it."""
        self.reads_from = self.start if self.needs_prefill else self.start + 1
        self.tokens[self.start :] = [*tokens, self.unknown]
        self.start = self.anchor = self.known_until = self.start + len(tokens)
        self.needs_prefill = True
        self._open_sub_block()

    def forked(self) -> "SequenceState":
        """A second sequence in the same state; the work of both is counted in one ledger, and so is what is shared."""
        twin = copy(self)
        twin.tokens = list(self.tokens)
        twin.changed = set(self.changed)
        twin.remembered = dict(self.remembered)
        twin.measured = dict(self.measured)
        return twin

    @property
    def answer(self) -> list[int]:
        """The new tokens known so far without a gap."""
        return self.tokens[self.prompt_length : self.known_until]

    def _open_next_block(self) -> None:
        self.start = self.anchor = self.stop
        self.tokens += [self.unknown] * self.block_size
        self.blocks_done += 1
        self._open_block()

    def _open_sub_block(self) -> None:
        size, anchor = self.sub_block_size, self.anchor
        first = anchor + (self.known_until - anchor) // size * size
        self.sub_block = range(first, min(first + size, self.stop))
        self.rule_steps = 0


def room_for(sequences: Sequence[SequenceState]) -> tuple[int, int]:
    """Positions that a slot must hold to serve any of these sequences, and the largest of their blocks."""
    return max(each.capacity for each in sequences), max(each.block_size for each in sequences)
