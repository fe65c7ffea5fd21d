"""The decoding loop: sequences enter free slots, each gets the forward it needs, finished ones leave.

Sequences are independent: which forward a sequence takes and what it writes depends on that sequence alone,
so the tokens of a request do not change with its batch mates. Sequences share forwards whatever their plans and
kinds of step; when one takes its step may depend on the others (mixing.py). What is written after a forward
is the writer's business: a generation's (unmasking.py) or a scoring's (scoring.py).
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby
from typing import Any, Protocol, final

import torch

from unmask.engine.events import StepEvent
from unmask.engine.forward import PlannedPart, Workspace, not_finite_error
from unmask.engine.mixing import in_order, whose_turn
from unmask.engine.policy import Policy
from unmask.engine.prefixes import Prefixes
from unmask.engine.sampling import LogitsReader, Predictions
from unmask.engine.schedule import (
    Piece,
    count_work,
    keys_written,
    measures_drift,
    next_piece,
    prompt_parts,
    prompt_work,
    remember,
)
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.engine.step_plan import FULL, Kind
from unmask.engine.unmasking import Writes
from unmask.model.geometry import Segment
from unmask.model.memory import MOST_LOGITS, PREFILL_ROWS


class Writer(Protocol):
    """What tells a generation from a scoring."""

    def slots(self, sequence: SequenceState) -> int:
        """The number of states that a sequence may come to be in at once, by forks."""
        ...

    def write(self, piece: Piece, predictions: Predictions) -> tuple[Writes, Sequence[SequenceState]]:
        """Make known what a forward led to; return that, and the sequences that part from this one here."""
        ...


@final
class Decoder:
    """Decodes sequences in the slots of a workspace."""

    def __init__(self, workspace: Workspace, policy: Policy, writer: Writer, reader: LogitsReader) -> None:
        self.workspace = workspace
        self.policy = policy
        self.layers = len(workspace.transformer.layers)
        self.writer = writer
        self.reader = reader
        self.free = list(reversed(range(workspace.cache.slots)))
        self.active: list[SequenceState] = []
        self.planned: dict[SequenceState, Piece] = {}
        """What sequences will do that wait for others: a policy is asked once a step."""
        self.prefixes = Prefixes(workspace.cache.slots)

    def run(self, sequences: Sequence[SequenceState]) -> Iterator[StepEvent | SequenceState]:
        """Decode all sequences to their end; yield every step as it happens and every sequence as it leaves."""
        waiting = deque(sequences)
        while waiting or self.active:
            while waiting and self._has_room(waiting[0]):
                self._enter(waiting.popleft())
            yield from self._step()
            for sequence in [sequence for sequence in self.active if sequence.finish_reason]:
                self.active.remove(sequence)
                self.free += [sequence.slot, sequence.shadow][: sequence.settings.slots]
                yield sequence

    def _has_room(self, sequence: SequenceState) -> bool:
        """Whether there are slots for a sequence and all forks, its own and those of the active ones."""
        if not self.free:
            return False
        forks = sum((self.writer.slots(other) - 1) * other.settings.slots for other in self.active)
        return len(self.free) - forks >= self.writer.slots(sequence) * sequence.settings.slots

    def _enter(self, sequence: SequenceState) -> None:
        self._take_slots(sequence)
        self.active.append(sequence)
        if not sequence.needs_prefill:
            self.prefixes.keep(sequence.slot, ())

    def _take_slots(self, sequence: SequenceState) -> None:
        sequence.slot = self.free.pop()
        if sequence.settings.guided:
            sequence.shadow = self.free.pop()

    def _step(self) -> Iterator[StepEvent]:
        yield from self._prefill([sequence for sequence in self.active if sequence.needs_prefill])
        pieces = [
            self.planned.get(sequence) or next_piece(sequence, self.policy, self.layers)
            for sequence in self.active
            if not (sequence.finish_reason or sequence.needs_prefill)
        ]
        now, later = whose_turn(pieces, self.layers)
        self.planned = {piece.sequence: piece for piece in later}
        for portion in _portions(in_order(now, self.layers)):
            yield from self._forward(portion)

    def _prefill(self, sequences: Sequence[SequenceState]) -> Iterator[StepEvent]:
        """Feed what no slot holds yet of the prompts, those first that others begin like."""
        while sequences:
            now, sequences = self.prefixes.ready(sequences)
            yield from self._feed([(sequence, self._take_over(sequence)) for sequence in now])

    def _take_over(self, sequence: SequenceState) -> int:
        """Copy the keys of a shared beginning into a sequence's slot; return where its own prompt begins."""
        slot, length = self.prefixes.longest(sequence)
        if slot != sequence.slot and length:
            self.workspace.copy_keys(slot, sequence.slot, length)
        self.prefixes.keep(sequence.slot, sequence.tokens[:length])
        size, end = sequence.block_size, sequence.start
        whole = prompt_work(range(sequence.prefilled, end), size)
        sequence.sharing.take_over(whole, prompt_work(range(length, end), size))
        return length

    def _feed(self, sequences: Sequence[tuple[SequenceState, int]]) -> Iterator[StepEvent]:
        """Feed whole prompt blocks, many at a time; a chunk ends where it would grow too large."""
        chunk: list[Piece] = []
        rows = 0
        for sequence, first in sequences:
            predicted = sequence.read_positions(Kind.PREFILL)
            for part in prompt_parts(range(first, sequence.start), sequence.block_size):
                reads = [position for position in predicted if sequence.source(position) in part]
                if chunk and rows + len(part) > PREFILL_ROWS:
                    yield from self._forward(chunk)
                    chunk, rows = [], 0
                chunk.append(Piece(sequence, Kind.PREFILL, FULL, part, len(part), reads))
                rows += len(part)
        if chunk:
            yield from self._forward(chunk)

    def _forward(self, pieces: Sequence[Piece]) -> Iterator[StepEvent]:
        """Run one forward and let every sequence take what it needs from it."""
        lanes = pieces[0].sequence.settings.slots
        tokens: list[int] = []
        segments: list[Segment] = []
        for piece in pieces:
            tokens += [piece.sequence.tokens[position] for position in piece.positions]
            segments.append(_segment(piece, piece.sequence.slot))
            if lanes > 1:
                tokens += _without_prompt(piece)
                segments.append(_segment(piece, piece.sequence.shadow))
        reads = list(chain.from_iterable(zip(*_read_rows(pieces, lanes), strict=True)))
        output = self.workspace.forward(tokens, segments, _parts(pieces, lanes), reads)
        predictions = self._read(output.hidden_TD, pieces)
        if output.drift_BL is not None:
            measured = [piece for piece in pieces if piece.plan.drift]
            self._note_drift(output.drift_BL.view(len(measured), lanes, -1).amax(dim=1), measured)
        for number, piece in enumerate(piece for piece in pieces if piece.is_last):
            piece.sequence.sharing.forwards += lanes if number else lanes - 1
        for piece, predictions_of_piece in zip(pieces, predictions, strict=True):
            yield from self._take(piece, predictions_of_piece)

    def _read(self, hidden_ND: torch.Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """Predict every position that is asked for."""
        if not len(hidden_ND):
            return [Predictions([], []) for _ in pieces]
        settings = pieces[0].sequence.settings
        lanes = hidden_ND.chunk(settings.slots)
        most = max(1, MOST_LOGITS // self.workspace.transformer.config.vocab_size)
        if len(lanes[0]) <= most:
            predictions = self.reader.read(self._logits(hidden_ND, settings), pieces)
        else:
            predictions = [
                self._read_in_parts(lanes, piece, first, most)
                for piece, first in zip(
                    pieces, accumulate((len(p.reads) for p in pieces), initial=0), strict=False
                )
            ]
        for piece, part in zip(pieces, predictions, strict=True):
            self._refuse_not_finite(piece.sequence, part)
        return predictions

    def _logits(self, hidden_ND: torch.Tensor, settings: BlockSettings) -> torch.Tensor:
        """Logits of some rows; with guidance away from those of the same rows without prompt, which come behind."""
        logits_NV = self.workspace.transformer.logits(hidden_ND)
        if not settings.guided:
            return logits_NV
        with_prompt_NV, without_NV = logits_NV.chunk(2)
        return without_NV + (settings.guidance + 1) * (with_prompt_NV - without_NV)

    def _read_in_parts(
        self, lanes: Sequence[torch.Tensor], piece: Piece, first: int, most: int
    ) -> Predictions:
        """Predict the positions of one piece a bounded number at a time: a large vocabulary's logits fill memory."""
        if not piece.reads:
            return Predictions([], [])
        parts = []
        for start in range(0, len(piece.reads), most):
            part = replace(piece, reads=piece.reads[start : start + most])
            begin, end = first + start, first + start + len(part.reads)
            chosen_ND = torch.cat([lane_ND[begin:end] for lane_ND in lanes])
            parts += self.reader.read(self._logits(chosen_ND, piece.sequence.settings), [part])
        return Predictions(
            *(list(chain.from_iterable(columns)) for columns in zip(*map(_columns, parts), strict=True))
        )

    def _refuse_not_finite(self, sequence: SequenceState, predictions: Predictions) -> None:
        """Stop at NaN, and look closer at all-equal logits: a norm that overflows returns zeros."""
        uniform = 1.001 / (self.workspace.transformer.config.vocab_size - 1)
        broken = any(map(math.isnan, predictions.confidences))
        # A confidence of zero is what a token has that is held back.
        low = self.reader.sees_the_best and any(0 < each <= uniform for each in predictions.confidences)
        if broken or low:
            where = self._first_bad_layer(sequence)
            if broken or where:
                raise not_finite_error(where, self.workspace.transformer.dtype)

    def _note_drift(self, drift_BL: torch.Tensor, pieces: Sequence[Piece]) -> None:
        """Keep what a plan measured, where there was an earlier step of the block to compare with."""
        for piece, drift in zip(pieces, drift_BL.tolist(), strict=True):
            if measures_drift(piece):
                piece.sequence.drift = tuple(drift)

    def _take(self, piece: Piece, predictions: Predictions) -> Iterator[StepEvent]:
        """Count a forward, let the writer write, and give the sequences that part here slots of their own."""
        sequence, kind = piece.sequence, piece.kind
        if not piece.is_last:
            if piece.reads:
                self.writer.write(piece, predictions)
            return
        step = sum(sequence.ledger.entries.values())
        fed, start = sequence.positions(kind), sequence.start
        work = count_work(piece, self.layers)
        remember(piece)
        sequence.fed(kind, keys_written(piece))
        if kind is Kind.PREFILL:
            self.prefixes.keep(sequence.slot, sequence.tokens[: sequence.prefilled])
        writes, forks = self.writer.write(piece, predictions)
        for fork in forks:
            self._give_slot(fork, sequence)
        positions, tokens, confidences = zip(*writes, strict=True) if writes else ((), (), ())
        yield StepEvent(
            sequence.index, kind, piece.plan, step, positions, tokens, confidences, fed, start, work
        )

    def _give_slot(self, fork: SequenceState, origin: SequenceState) -> None:
        """Let a fork go on in a slot that holds what its origin's slot holds."""
        self._take_slots(fork)
        self.workspace.copy_slot(origin.slot, fork.slot, origin.stop)
        if fork.settings.guided:
            self.workspace.copy_slot(origin.shadow, fork.shadow, origin.stop)
        self.prefixes.keep(fork.slot, self.prefixes.held[origin.slot])
        self.active.append(fork)

    def _first_bad_layer(self, sequence: SequenceState) -> str | None:
        """Feed the sequence's blocks again from the first, watching every layer, in buffers of their own."""
        size = sequence.block_size
        scratch = Workspace(self.workspace.transformer, 1, sequence.stop, size)
        end = sequence.known_until if sequence.settings.mask_token is None else sequence.stop
        for part in prompt_parts(range(end), size):
            segments = [_prompt_segment(0, part, size)]
            where = scratch.first_bad_layer(sequence.tokens[part.start : part.stop], segments)
            if where:
                return where
        return None


def _portions(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Pieces that one forward takes: as many as come to a bounded number of rows."""
    part: list[Piece] = []
    rows = 0
    for piece in pieces:
        if part and rows + len(piece.positions) > PREFILL_ROWS:
            yield part
            part, rows = [], 0
        part.append(piece)
        rows += len(piece.positions)
    if part:
        yield part


def _parts(pieces: Sequence[Piece], lanes: int) -> list[PlannedPart]:
    """The plans of neighbouring pieces; none where everybody computes everything."""
    parts = []
    for plan, group in groupby(pieces, key=lambda piece: piece.plan.shared):
        counts = [(piece.always, piece.kept - piece.always) for piece in group for _ in range(lanes)]
        parts.append(PlannedPart(plan, len(counts), counts if plan.rows else ()))
    return [] if [part.plan for part in parts] == [FULL] else parts


def _read_rows(pieces: Sequence[Piece], lanes: int) -> list[tuple[int, ...]]:
    """For every position that is predicted the row of its source, and with guidance that without prompt as well."""
    rows, start = [], 0
    for piece in pieces:
        source = piece.sequence.source
        places = (start + piece.positions.index(source(position)) for position in piece.reads)
        rows += [tuple(row + lane * piece.kept for lane in range(lanes)) for row in places]
        start += lanes * piece.kept
    return rows


def _without_prompt(piece: Piece) -> list[int]:
    """The tokens of a piece with its prompt unknown."""
    sequence = piece.sequence
    first, unknown, tokens = sequence.prompt_length, sequence.unknown, sequence.tokens
    return [unknown if position < first else tokens[position] for position in piece.positions]


def _columns(predictions: Predictions) -> tuple[Sequence[Any], ...]:
    return predictions.tokens, predictions.confidences, predictions.scores, predictions.logprobs


def _segment(piece: Piece, slot: int) -> Segment:
    sequence, positions = piece.sequence, piece.positions
    if piece.kind is Kind.PREFILL:
        return _prompt_segment(slot, positions, sequence.block_size)
    return Segment(slot, positions, sequence.stop, sequence.start)


def _prompt_segment(slot: int, positions: Sequence[int], block_size: int) -> Segment:
    several = len(positions) > block_size
    return Segment(slot, positions, positions[-1] + 1, positions[0], stair=block_size if several else 0)
