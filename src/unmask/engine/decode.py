"""The decoding loop: rows enter free slots, every row gets the forward it needs, finished rows leave.

Rows are independent: which forward a row takes and what it writes depends on that row alone, so the
tokens of a request do not change with its batch mates. Rows whose plans are equal share a forward,
whatever kind of step they are at.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from unmask.engine.decider import Decider
from unmask.engine.events import StepEvent
from unmask.engine.forward import Workspace, not_finite_error
from unmask.engine.policy import Policy
from unmask.engine.prefixes import Prefixes
from unmask.engine.row import Row
from unmask.engine.sampling import Candidates, Reader
from unmask.engine.schedule import Piece, keys_written, measures_drift, next_piece, remember, work_of
from unmask.engine.step_plan import FULL, Kind, StepPlan
from unmask.model.geometry import Segment
from unmask.model.memory import PREFILL_ROWS


class Decoder:
    """Decodes rows in the slots of a workspace."""

    def __init__(
        self,
        workspace: Workspace,
        policy: Policy,
        decider: Decider,
        reader: Reader,
        on_settled: Callable[[Row], None] | None = None,
    ) -> None:
        self.workspace = workspace
        self.policy = policy
        self.layers = len(workspace.transformer.layers)
        self.decider = decider
        self.reader = reader
        self.on_settled = on_settled
        """Called when a row's answer has grown; may finish the row (stop strings do)."""
        self.free = list(reversed(range(workspace.cache.slots)))
        self.active: list[Row] = []
        self.prefixes = Prefixes(workspace.cache.slots)

    def run(self, rows: Sequence[Row]) -> Iterator[StepEvent | Row]:
        """Decode all rows to their end, telling every step as it happens and every row as it leaves."""
        waiting = deque(rows)
        while waiting or self.active:
            while waiting and self._has_room(waiting[0]):
                self._enter(waiting.popleft())
            yield from self._step()
            for row in [row for row in self.active if row.finish_reason]:
                self.active.remove(row)
                self.free.append(row.slot)
                yield row

    def _has_room(self, row: Row) -> bool:  # noqa: ARG002 (some rows need more than one slot)
        return bool(self.free)

    def _enter(self, row: Row) -> None:
        row.slot = self.free.pop()
        self.active.append(row)
        if not row.needs_prefill:
            self.prefixes.keep(row.slot, ())

    def _step(self) -> Iterator[StepEvent]:
        yield from self._prefill([row for row in self.active if row.needs_prefill])
        groups: dict[StepPlan, list[Piece]] = {}
        for row in self.active:
            if not row.finish_reason:
                piece = next_piece(row, self.policy, self.layers)
                groups.setdefault(piece.plan.shared, []).append(piece)
        for plan, pieces in groups.items():
            # Neighbouring slots that see equally far share an attention call.
            pieces.sort(key=lambda piece: (len(piece.columns), piece.row.stop, piece.row.slot))
            yield from self._forward(pieces, plan)

    def _prefill(self, rows: Sequence[Row]) -> Iterator[StepEvent]:
        """Feed what no slot holds yet of the prompts, those first that others begin like."""
        while rows:
            now, rows = self.prefixes.ready(rows)
            yield from self._feed([(row, self._take_over(row)) for row in now])
            for row in now:
                self.prefixes.keep(row.slot, row.tokens[: row.start])

    def _take_over(self, row: Row) -> int:
        """Copy the keys of a shared beginning into a row's slot; return where its own prompt begins."""
        slot, columns = self.prefixes.longest(row)
        if slot != row.slot and columns:
            self.workspace.copy_keys(slot, row.slot, columns)
        self.prefixes.keep(row.slot, row.tokens[:columns])
        return columns

    def _feed(self, rows: Sequence[tuple[Row, int]]) -> Iterator[StepEvent]:
        """Feed whole prompt blocks, many at a time; a chunk ends where it would grow too large."""
        chunk: list[Piece] = []
        for row, first in rows:
            size, end = row.rules.block_size, row.start
            for start in range(first, end, size):
                last = start + size == end
                reads = row.read_columns(Kind.PREFILL) if last else []
                chunk.append(Piece(row, Kind.PREFILL, FULL, range(start, start + size), size, reads))
                if len(chunk) * size >= PREFILL_ROWS:
                    yield from self._forward(chunk, FULL)
                    chunk = []
        if chunk:
            yield from self._forward(chunk, FULL)

    def _forward(self, pieces: Sequence[Piece], plan: StepPlan) -> Iterator[StepEvent]:
        """Run one forward and let every row take what it needs from it."""
        tokens = [piece.row.tokens[column] for piece in pieces for column in piece.columns]
        segments = [
            Segment(p.row.slot, p.columns, p.columns[-1] + 1 if p.kind is Kind.PREFILL else p.row.stop)
            for p in pieces
        ]
        selection = [(piece.always, piece.kept - piece.always) for piece in pieces] if plan.rows else ()
        outcome = self.workspace.forward(tokens, segments, plan, selection)
        found = self._read(outcome.hidden_TD, pieces)
        if outcome.drift_BL is not None:
            self._note_drift(outcome.drift_BL, pieces)
        for piece, candidates_of_piece in zip(pieces, found, strict=True):
            yield from self._take(piece, candidates_of_piece)

    def _read(self, hidden_TD: torch.Tensor, pieces: Sequence[Piece]) -> list[Candidates]:
        """Candidates of every column to be predicted, each from the row one position to its left."""
        places, start = [], 0
        for piece in pieces:
            places += [start + piece.columns.index(column - 1) for column in piece.reads]
            start += piece.kept
        if not places:
            return [Candidates([], []) for _ in pieces]
        read_N = torch.tensor(places).to(hidden_TD.device, non_blocking=True)
        found = self.reader.read(self.workspace.transformer.logits(hidden_TD[read_N]), pieces)
        for piece, part in zip(pieces, found, strict=True):
            self._refuse_not_finite(piece.row, part)
        return found

    def _refuse_not_finite(self, row: Row, found: Candidates) -> None:
        """Stop at NaN, and look closer at all-equal logits: a norm that overflows returns zeros."""
        uniform = 1.001 / (self.workspace.transformer.config.vocab_size - 1)
        broken = any(map(math.isnan, found.confidences))
        if broken or any(confidence <= uniform for confidence in found.confidences):
            where = self._first_bad_layer(row)
            if broken or where:
                raise not_finite_error(where, self.workspace.transformer.dtype)

    def _note_drift(self, drift_BL: torch.Tensor, pieces: Sequence[Piece]) -> None:
        """Keep what a plan measured, where there was an earlier step of the block to compare with."""
        for piece, drift in zip(pieces, drift_BL.tolist(), strict=True):
            if measures_drift(piece):
                piece.row.drift = tuple(drift)

    def _take(self, piece: Piece, found: Candidates) -> Iterator[StepEvent]:
        row, kind = piece.row, piece.kind
        if kind is Kind.PREFILL and piece.columns[-1] + 1 < row.start:
            return
        step = sum(row.ledger.entries.values())
        row.ledger.add(work_of(piece, self.layers))
        remember(piece)
        if kind in (Kind.BLOCK, Kind.SUB):
            writes = self.decider.denoised(row, piece.reads, found)
        else:
            writes = self.decider.committed(row, piece.reads[0], found) if piece.reads else []
        row.fed(kind, keys_written(piece))
        for column, token, _ in writes:
            row.write(column, token)
        known = row.frontier
        row.settle()
        if self.on_settled and row.frontier > known:
            self.on_settled(row)
        columns, tokens, confidences = zip(*writes, strict=True) if writes else ((), (), ())
        yield StepEvent(row.index, kind, piece.plan, step, columns, tokens, confidences)

    def _first_bad_layer(self, row: Row) -> str | None:
        """Feed the row's blocks again from the first, watching every layer, in buffers of their own."""
        size = row.rules.block_size
        scratch = Workspace(self.workspace.transformer, 1, row.stop, size)
        for start in range(0, row.stop, size):
            block = range(start, start + size)
            segments = [Segment(0, block, block.stop)]
            where = scratch.first_bad_layer(row.tokens[block.start : block.stop], segments)
            if where:
                return where
        return None
