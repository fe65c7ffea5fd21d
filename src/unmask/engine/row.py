"""The state of one request while it is decoded: which columns are known and which forward comes next.

Knows the rules of blocks, sub-blocks, the block cache and stopping, on plain Python integers. It does
not know about tensors, batches or policies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.cost import Ledger
from unmask.engine.step_plan import Feature, Kind


@dataclass(frozen=True, slots=True)
class BlockRules:
    """What all rows of a decoding share."""

    block_size: int
    sub_block_size: int
    block_cache: bool
    mask_token: int
    stop_tokens: frozenset[int]


class Row:
    """One request: its tokens, the block it is in, and its ledger."""

    def __init__(
        self,
        index: int,
        prompt: Sequence[int],
        max_new_tokens: int,
        rules: BlockRules,
        layers: int,
        seed: int = 0,
        end_reason: str = "length",
    ) -> None:
        self.index = index
        self.seed = seed
        self.rules = rules
        self.prompt_length = len(prompt)
        self.end = len(prompt) + max_new_tokens
        self.end_reason = end_reason
        """What it means to have reached `end`."""
        self.ledger = Ledger(layers)
        self.slot = -1
        self.finish_reason: str | None = None
        self.start = len(prompt) // rules.block_size * rules.block_size
        """First column of the current block; everything before it is in the cache once prefilled."""
        self.needs_prefill = self.start > 0
        self.frontier = len(prompt)
        """First column that is not known."""
        self.blocks_done = 0
        self.step = 0
        """Denoising steps taken in this block."""
        self.total_steps = 0
        self.block_steps = 0
        """Full-block steps among them."""
        self.has_block_keys = False
        self.changed: set[int] = set()
        """Columns of the block whose token is newer than its keys."""
        self.remembered: dict[Feature, int] = {}
        """For each feature, a bit for every position of this block that it was refreshed for."""
        self.measured: dict[int, int] = {}
        """For each layer, a bit for every position of this block whose input to it was remembered."""
        self.ages: list[int] = []
        """For each layer, steps since it last computed; empty before this block's first step."""
        self.drift: tuple[float, ...] = ()
        """For each layer, how far its input had moved when that was last measured in this block."""
        padding = self.start + rules.block_size - len(prompt)
        self.tokens = [*prompt, *[rules.mask_token] * padding]

    @property
    def stop(self) -> int:
        """End of the current block."""
        return self.start + self.rules.block_size

    @property
    def sub_block(self) -> range:
        """Columns of the current sub-block: the one that holds the first unknown column."""
        size = self.rules.sub_block_size
        first = self.start + (self.frontier - self.start) // size * size
        return range(first, first + size)

    def next_kind(self) -> Kind:
        """The forward that this row needs now, whatever its batch mates do."""
        if self.needs_prefill:
            return Kind.PREFILL
        if self.frontier >= self.stop:
            return Kind.COMMIT
        first_is_masked = self.frontier == self.sub_block.start
        if self.rules.block_cache and self.has_block_keys and not first_is_masked:
            return Kind.SUB
        return Kind.BLOCK

    def columns(self, kind: Kind) -> range:
        """The columns that a forward of this kind feeds (a prefill is fed block by block)."""
        if kind is Kind.SUB:
            return self.sub_block
        return range(self.start) if kind is Kind.PREFILL else range(self.start, self.stop)

    def masked(self, columns: Sequence[int]) -> list[int]:
        """Those of `columns` that are not known."""
        mask = self.rules.mask_token
        return [column for column in columns if self.tokens[column] == mask]

    def read_columns(self, kind: Kind) -> list[int]:
        """Columns to be predicted after a forward of this kind; each is read one position to its left."""
        if kind is Kind.COMMIT:
            return [self.stop]
        if kind is Kind.PREFILL:
            return [self.start] if self.frontier == self.start else []
        return self.masked(self.sub_block)

    def fed(self, kind: Kind, renewed: Sequence[int]) -> None:
        """Note a forward of this kind, and the columns whose keys it has renewed."""
        if kind is Kind.PREFILL:
            self.needs_prefill = False
        elif kind is Kind.COMMIT:
            self._open_next_block()
        else:
            self.step += 1
            self.total_steps += 1
            self.block_steps += kind is Kind.BLOCK
            self.has_block_keys = True
            self.changed.difference_update(renewed)

    def write(self, column: int, token: int) -> None:
        """Make a column known."""
        self.tokens[column] = token
        self.changed.add(column)

    def settle(self) -> None:
        """Advance the frontier over known columns and finish where the answer is settled."""
        mask, limit = self.rules.mask_token, min(self.stop, self.end)
        while self.frontier < limit and self.tokens[self.frontier] != mask:
            self.frontier += 1
            if self.tokens[self.frontier - 1] in self.rules.stop_tokens:
                self.finish_reason = "stop"
                return
        if self.frontier >= self.end:
            self.finish_reason = self.end_reason

    def cut(self, length: int, reason: str) -> None:
        """Finish with the first `length` new tokens."""
        self.frontier = self.prompt_length + length
        self.finish_reason = reason

    @property
    def answer(self) -> list[int]:
        """The new tokens known so far without a gap."""
        return self.tokens[self.prompt_length : self.frontier]

    def _open_next_block(self) -> None:
        self.start = self.stop
        self.tokens += [self.rules.mask_token] * self.rules.block_size
        self.blocks_done += 1
        self.step = 0
        self.block_steps = 0
        self.has_block_keys = False
        self.changed.clear()
        self.remembered.clear()
        self.measured.clear()
        self.ages = []
        self.drift = ()
