"""The decoding loop: rows enter free slots, every row gets the forward it needs, finished rows leave.

Rows are independent: which forward a row takes and what it writes depends on that row alone, so the
tokens of a request do not change with its batch mates. Rows whose plans are equal share a forward,
whatever kind of step they are at.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from unmask.cost import Work
from unmask.engine.decider import Decider
from unmask.engine.events import StepEvent
from unmask.engine.forward import Workspace, not_finite_error
from unmask.engine.policy import Full, Policy, StepView
from unmask.engine.row import Row
from unmask.engine.sampling import GREEDY, Candidates, candidates, to_host, uniform
from unmask.engine.step_plan import FULL, Kind, StepPlan
from unmask.model.geometry import Segment

PREFILL_ROWS = 1024
"""Rows of one prefill forward, so that long prompts need no memory in proportion."""


@dataclass(frozen=True, slots=True)
class Draws:
    """How candidates are taken from logits."""

    mask_token: int
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One row's share of a forward: the columns fed and those predicted from it."""

    row: Row
    kind: Kind
    plan: StepPlan
    columns: range
    reads: list[int]


class Decoder:
    """Decodes rows in the slots of a workspace."""

    def __init__(
        self,
        workspace: Workspace,
        policy: Policy,
        decider: Decider,
        draws: Draws,
        on_settled: Callable[[Row], None] | None = None,
    ) -> None:
        self.workspace = workspace
        self.policy = None if isinstance(policy, Full) else policy
        self.decider = decider
        self.draws = draws
        self.on_settled = on_settled
        """Called when a row's answer has grown; may finish the row (stop strings do)."""

    def run(self, rows: Sequence[Row]) -> Iterator[StepEvent | Row]:
        """Decode all rows to their end, telling every step as it happens and every row as it leaves."""
        waiting, active = deque(rows), list[Row]()
        free = list(reversed(range(self.workspace.cache.slots)))
        while waiting or active:
            while free and waiting:
                active.append(waiting.popleft())
                active[-1].slot = free.pop()
            yield from self._step(active)
            for row in active:
                if row.finish_reason:
                    free.append(row.slot)
                    yield row
            active = [row for row in active if not row.finish_reason]

    def _step(self, active: Sequence[Row]) -> Iterator[StepEvent]:
        yield from self._prefill([row for row in active if row.needs_prefill])
        groups: dict[StepPlan, list[Piece]] = {}
        for row in active:
            if not row.finish_reason:
                piece = self._piece(row)
                groups.setdefault(piece.plan, []).append(piece)
        for pieces in groups.values():
            pieces.sort(key=lambda piece: len(piece.columns))
            yield from self._forward(pieces)

    def _piece(self, row: Row) -> Piece:
        kind = row.next_kind()
        plan = FULL if self.policy is None or kind is Kind.COMMIT else self.policy.plan(self._view(row, kind))
        return Piece(row, kind, plan, row.columns(kind), row.read_columns(kind))

    def _view(self, row: Row, kind: Kind) -> StepView:
        start, sub_block = row.start, row.sub_block
        return StepView(
            kind=kind,
            layers=len(self.workspace.transformer.layers),
            block=row.blocks_done,
            step=row.step,
            sub_block=range(sub_block.start - start, sub_block.stop - start),
            masked=tuple(column - start for column in row.masked(range(start, row.stop))),
            changed=tuple(sorted(column - start for column in row.changed)),
        )

    def _prefill(self, rows: Sequence[Row]) -> Iterator[StepEvent]:
        """Feed whole prompt blocks, many at a time; a chunk ends where it would grow too large."""
        chunk: list[Piece] = []
        for row in rows:
            size = row.rules.block_size
            for start in range(0, row.start, size):
                last = start + size == row.start
                reads = row.read_columns(Kind.PREFILL) if last else []
                chunk.append(Piece(row, Kind.PREFILL, FULL, range(start, start + size), reads))
                if len(chunk) * size >= PREFILL_ROWS:
                    yield from self._forward(chunk)
                    chunk = []
        if chunk:
            yield from self._forward(chunk)

    def _forward(self, pieces: Sequence[Piece]) -> Iterator[StepEvent]:
        """Run one forward and let every row take what it needs from it."""
        tokens = [
            token for piece in pieces for token in piece.row.tokens[piece.columns.start : piece.columns.stop]
        ]
        segments = [
            Segment(p.row.slot, p.columns, p.columns.stop if p.kind is Kind.PREFILL else p.row.stop)
            for p in pieces
        ]
        hidden_TD = self.workspace.forward(tokens, segments)
        found = self._read(hidden_TD, pieces)
        for piece, candidates_of_piece in zip(pieces, found, strict=True):
            yield from self._take(piece, candidates_of_piece)

    def _read(self, hidden_TD: torch.Tensor, pieces: Sequence[Piece]) -> list[Candidates]:
        """Candidates of every column to be predicted, each from the row one position to its left."""
        places, uniforms, start = [], [], 0
        for piece in pieces:
            for column in piece.reads:
                places.append(start + column - 1 - piece.columns.start)
                uniforms.append(self._uniform(piece, column))
            start += len(piece.columns)
        if not places:
            return [Candidates([], []) for _ in pieces]
        read_N = torch.tensor(places).to(hidden_TD.device, non_blocking=True)
        logits_NV = self.workspace.transformer.logits(hidden_TD[read_N])
        found = to_host(
            candidates(logits_NV, self.draws.mask_token, uniforms, self.draws.temperature, self.draws.top_p)
        )
        return self._split(found, pieces)

    def _split(self, found: Candidates, pieces: Sequence[Piece]) -> list[Candidates]:
        parts, start = [], 0
        for piece in pieces:
            stop = start + len(piece.reads)
            parts.append(Candidates(found.tokens[start:stop], found.confidences[start:stop]))
            if any(map(math.isnan, parts[-1].confidences)):
                raise self._diagnose(piece.row)
            start = stop
        return parts

    def _uniform(self, piece: Piece, column: int) -> float:
        if self.draws.temperature == 0 or piece.kind in (Kind.COMMIT, Kind.PREFILL):
            return GREEDY
        return uniform(piece.row.seed, column, piece.row.total_steps)

    def _take(self, piece: Piece, found: Candidates) -> Iterator[StepEvent]:
        row, kind = piece.row, piece.kind
        if kind is Kind.PREFILL and piece.columns.stop < row.start:
            return
        step = sum(row.ledger.entries.values())
        row.ledger.add(_work(piece))
        if kind in (Kind.BLOCK, Kind.SUB):
            writes = self.decider.denoised(row, piece.reads, found)
        else:
            writes = self.decider.committed(row, piece.reads[0], found) if piece.reads else []
        row.fed(kind, piece.columns)
        for column, token, _ in writes:
            row.write(column, token)
        known = row.frontier
        row.settle()
        if self.on_settled and row.frontier > known:
            self.on_settled(row)
        columns, tokens, confidences = zip(*writes, strict=True) if writes else ((), (), ())
        yield StepEvent(row.index, kind, piece.plan, step, columns, tokens, confidences)

    def _diagnose(self, row: Row) -> Exception:
        """Feed the row's blocks again from the first, watching every layer."""
        size = row.rules.block_size
        for start in range(0, row.stop, size):
            block = range(start, start + size)
            segments = [Segment(row.slot, block, block.stop)]
            where = self.workspace.first_bad_layer(row.tokens[block.start : block.stop], segments)
            if where:
                return not_finite_error(where, self.workspace.transformer.dtype)
        return not_finite_error(None, self.workspace.transformer.dtype)


def _work(piece: Piece) -> Work:
    """What the forward cost this row; a prefill counts once, when its last block is through."""
    row, size = piece.row, piece.row.rules.block_size
    if piece.kind is Kind.PREFILL:
        blocks = row.start // size
        return Work("prefill", row.start, size * size * blocks * (blocks + 1) // 2, len(piece.reads))
    rows = len(piece.columns)
    return Work(piece.kind.value, rows, rows * row.stop, len(piece.reads))
