"""Scoring is generation with forced tokens: the same loop, caches and policies, with targets written in.

An estimator says which columns a step reveals and what is known besides the prefix:

- `chain`: one column a step, the most confident one (or the leftmost): the log probability of the target
  under the sampler that picks columns so and draws every token at temperature 1. Sums to 1 over all
  targets of a length, with any policy.
- `onepass`: all columns of a block at once, from the fully masked block.
- `canvas`: single tokens; the block is fed fully masked, then with an end token behind the answer, and
  the answer is read in the second state, which a policy may replay.
- `first_token`: the published evaluation: only the first token is scored, and it sees the rest of its target.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.engine.decode import Decoder
from unmask.engine.events import StepEvent
from unmask.engine.row import Row
from unmask.engine.sampling import Candidates, most_likely
from unmask.engine.schedule import Piece, keys_written, remember, work_of
from unmask.engine.score_row import Member, ScoreRow
from unmask.engine.step_plan import Kind


@dataclass(frozen=True, slots=True)
class TargetReader:
    """Reads the most likely token, its probability, and the log probability of every member's token."""

    mask_token: int
    mask_may_win: bool
    """True leaves MASK among the candidates, as the published evaluation does."""

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Candidates]:
        """Candidates with the log probabilities that the members ask for."""
        if not self.mask_may_win:
            logits_NV[:, self.mask_token] = -torch.inf
        wanted = [self._wanted(piece.row, column) for piece in pieces for column in piece.reads]
        rows = [row for row, tokens in enumerate(wanted) for _ in tokens]
        columns = [token for tokens in wanted for token in tokens]
        asked = torch.tensor([rows, columns]).to(logits_NV.device, non_blocking=True)
        logprobs = logits_NV[asked[0], asked[1]] - torch.logsumexp(logits_NV, dim=-1)[asked[0]]
        tokens_N, confidences_N = most_likely(logits_NV)
        packed = torch.cat([tokens_N.float(), confidences_N, logprobs]).tolist()
        count = len(wanted)
        values = iter(packed[2 * count :])
        told = [{token: next(values) for token in tokens} for tokens in wanted]
        return _split([int(token) for token in packed[:count]], packed[count : 2 * count], told, pieces)

    @staticmethod
    def _wanted(row: Row, column: int) -> list[int]:
        assert isinstance(row, ScoreRow)
        tokens = (member.token_at(column) for member in row.members)
        return list(dict.fromkeys(token for token in tokens if token is not None))


def _split(
    tokens: list[int], confidences: list[float], logprobs: list[dict[int, float]], pieces: Sequence[Piece]
) -> list[Candidates]:
    parts, start = [], 0
    for piece in pieces:
        stop = start + len(piece.reads)
        parts.append(Candidates(tokens[start:stop], confidences[start:stop], logprobs[start:stop]))
        start = stop
    return parts


@dataclass(frozen=True, slots=True)
class Estimator:
    """How a step reveals targets."""

    name: str
    order: str = "confidence"

    def revealed(self, member: Member, columns: Sequence[int], found: Candidates) -> list[int]:
        """Indices of the columns that a denoising step reveals to a member."""
        own = [index for index, column in enumerate(columns) if column < member.end]
        if self.name == "onepass":
            return own
        if self.name == "chain" and self.order == "confidence":
            return [max(own, key=lambda index: found.confidences[index])]
        return own[:1]

    @property
    def first_only(self) -> bool:
        """Whether a target counts as scored after its first token."""
        return self.name == "first_token"


class ScoringDecoder(Decoder):
    """Feeds rows as a decoding does and writes their targets."""

    def __init__(self, *arguments: object, estimator: Estimator, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.estimator = estimator

    def _has_room(self, row: Row) -> bool:
        """Every member may need a slot of its own before it is done."""
        assert isinstance(row, ScoreRow)
        may_fork = sum(len(other.members) - 1 for other in self.active if isinstance(other, ScoreRow))
        return len(self.free) - may_fork >= len(row.members)

    def _take(self, piece: Piece, found: Candidates) -> Iterator[StepEvent]:
        row, kind = piece.row, piece.kind
        assert isinstance(row, ScoreRow)
        if kind is Kind.PREFILL and piece.columns[-1] + 1 < row.start:
            return
        step = sum(row.ledger.entries.values())
        row.ledger.add(work_of(piece, self.layers))
        remember(piece)
        row.fed(kind, keys_written(piece))
        if kind in (Kind.BLOCK, Kind.SUB) and row.shown:
            row.show(row.shown)
            row.shown = {}
        elif piece.reads:
            self._reveal(row, piece, found)
        yield StepEvent(row.index, kind, piece.plan, step, (), (), ())

    def _reveal(self, row: ScoreRow, piece: Piece, found: Candidates) -> None:
        """Write each member's tokens; members that got different ones part."""
        parted: dict[tuple[tuple[int, int], ...], list[Member]] = {}
        for member in row.members:
            if piece.kind in (Kind.BLOCK, Kind.SUB):
                chosen = self.estimator.revealed(member, piece.reads, found)
            else:
                chosen = [0]
            writes = []
            for index in chosen:
                token = member.token_at(piece.reads[index])
                assert token is not None
                member.reveal(found.logprobs[index][token], found.tokens[index] == token)
                writes.append((piece.reads[index], token))
            if not (member.is_done or self.estimator.first_only):
                parted.setdefault(tuple(writes), []).append(member)
        twins = [row, *(self._fork(row, members) for members in list(parted.values())[1:])]
        if not parted:
            row.keep([])
        for twin, (shared, members) in zip(twins, parted.items(), strict=False):
            twin.keep(members)
            for column, token in shared:
                twin.write(column, token)
            twin.settle()

    def _fork(self, row: ScoreRow, members: list[Member]) -> ScoreRow:
        twin = row.forked(members)
        twin.slot = self.free.pop()
        self.workspace.copy_slot(row.slot, twin.slot, row.stop)
        self.prefixes.keep(twin.slot, self.prefixes.held[row.slot])
        self.active.append(twin)
        return twin
