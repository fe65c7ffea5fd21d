"""A row that is scored instead of generated: several targets behind one prefix, together while they agree.

Members share every forward as long as the same tokens have been revealed to them at the same columns;
where they part, the row forks.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from unmask.engine.row import BlockRules, Row
from unmask.engine.step_plan import Kind


@dataclass(slots=True)
class Member:
    """One target on its way: what was revealed of it and how likely that was."""

    index: int
    tokens: tuple[int, ...]
    first: int
    """Column of its first token."""
    logprob: float = 0.0
    is_greedy: bool = True
    revealed: int = 0

    @property
    def end(self) -> int:
        """The column behind its last token."""
        return self.first + len(self.tokens)

    @property
    def is_done(self) -> bool:
        """Whether every token has been revealed."""
        return self.revealed == len(self.tokens)

    def token_at(self, column: int) -> int | None:
        """Its token at a column, if it has one there."""
        return self.tokens[column - self.first] if column < self.end else None

    def reveal(self, logprob: float, most_likely: bool) -> None:
        """Count one token in."""
        self.logprob += logprob
        self.is_greedy = self.is_greedy and most_likely
        self.revealed += 1


class ScoreRow(Row):
    """A row whose unknown columns are those of its members' targets."""

    def __init__(
        self, group: int, prefix: Sequence[int], members: list[Member], rules: BlockRules, layers: int
    ) -> None:
        longest = max(len(member.tokens) for member in members)
        super().__init__(group, prefix, longest, rules, layers)
        self.members = members
        self.shown: dict[int, int] = {}
        """Tokens to be made known after the first step, by column (what the reference's canvas shows)."""

    def read_columns(self, kind: Kind) -> list[int]:
        """Columns to be predicted: those of a target, never what lies behind the longest."""
        return [column for column in super().read_columns(kind) if column < self.end]

    def show(self, known: dict[int, int]) -> None:
        """Make columns of this block known without scoring them."""
        for column, token in known.items():
            if column < self.stop:
                self.write(column, token)

    def forked(self, members: list[Member]) -> "ScoreRow":
        """The same state for some of the members; work done from now on is counted in the same ledger."""
        twin = copy(self)
        twin.tokens = list(self.tokens)
        twin.changed = set(self.changed)
        twin.remembered = dict(self.remembered)
        twin.measured = dict(self.measured)
        twin.ages = list(self.ages)
        twin.shown = dict(self.shown)
        twin.keep(members)
        return twin

    def keep(self, members: list[Member]) -> None:
        """Go on with some members only; without any the row is finished."""
        self.members = members
        if members:
            self.end = max(member.end for member in members)
        else:
            self.finish_reason = "scored"
