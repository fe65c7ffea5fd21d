"""Which prompt blocks every slot holds, so that a prompt that begins alike takes them over instead of feeding them.

Attention runs from block to block, so the keys of a whole block depend on nothing behind it. Slots keep
what they hold after their row has left. Knows tokens and slots, no tensors.
"""

from collections.abc import Sequence

from unmask.engine.row import Row


class Prefixes:
    """The tokens whose keys and values lie in the first columns of every slot."""

    def __init__(self, slots: int) -> None:
        self.held: list[Sequence[int]] = [()] * slots

    def ready(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Rows to prefill now, and those that gain by waiting for one of them."""
        now: list[Row] = []
        later: list[Row] = []
        for row in rows:
            present = self.longest(row)[1]
            promised = max((shared(row, other.tokens[: other.start]) for other in now), default=0)
            (later if promised > present else now).append(row)
        return now, later

    def longest(self, row: Row) -> tuple[int, int]:
        """The slot that holds most of a row's prompt, and how many columns of it; its own slot where equal."""
        slot = max(range(len(self.held)), key=lambda slot: (shared(row, self.held[slot]), slot == row.slot))
        return slot, shared(row, self.held[slot])

    def keep(self, slot: int, tokens: Sequence[int]) -> None:
        """Note what a slot holds from now on."""
        self.held[slot] = tokens


def shared(row: Row, tokens: Sequence[int]) -> int:
    """Columns in whole blocks that a row's prompt has in common with these tokens.

    The last block of a prompt is always fed, because the first token may be read from it.
    """
    size = row.rules.block_size
    columns = 0
    while (
        columns + 2 * size <= row.start
        and columns + size <= len(tokens)
        and row.tokens[columns : columns + size] == list(tokens[columns : columns + size])
    ):
        columns += size
    return columns
