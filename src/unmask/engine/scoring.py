"""Scoring is a decoding whose tokens are given: the same sequences, plans and forwards, with targets written in.

Targets behind one prefix are one sequence as long as the same tokens have been revealed to them at the same
positions; where they part, the sequence forks. An estimator says which positions a step reveals and what is
known besides the prefix:

- `chain`: one position a step, the most confident one (or the leftmost): the log probability of the target
  under the sampler that picks positions so and draws every token at temperature 1. Sums to 1 over all
  targets of a length, with any policy.
- `onepass`: all positions of a block at once, from the fully masked block.
- `canvas`: single tokens; the block is fed fully masked, then with an end token behind the answer, and
  the answer is read in the second state, which a policy may replay.
- `first_token`: the published evaluation: only the first token is scored, and it sees the rest of its target.

Requests, groups and results are in score.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unmask.engine.sampling import Predictions, most_likely
from unmask.engine.schedule import Piece
from unmask.engine.sequence import SequenceState
from unmask.engine.step_plan import DENOISING
from unmask.engine.unmasking import Writes
from unmask.model.device import upload


@dataclass(slots=True)
class Target:
    """One target on its way: what was revealed of it and how likely that was."""

    index: int
    tokens: tuple[int, ...]
    first: int
    """Position of its first token."""
    logprob: float = 0.0
    is_greedy: bool = True
    revealed: int = 0

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.first + len(self.tokens)

    @property
    def is_done(self) -> bool:
        """Whether every token has been revealed."""
        return self.revealed == len(self.tokens)

    def token_at(self, position: int) -> int | None:
        """Its token at a position, if it has one there."""
        return self.tokens[position - self.first] if position < self.end else None

    def reveal(self, logprob: float, most_likely: bool) -> None:
        """Count one token in."""
        self.logprob += logprob
        self.is_greedy = self.is_greedy and most_likely
        self.revealed += 1


@dataclass(slots=True)
class TargetGroup:
    """What a sequence is scored for."""

    targets: list[Target]
    shown: dict[int, int] = field(default_factory=dict)
    """Tokens to be made known after the first step, by position (what the reference's canvas shows)."""


TargetGroups = dict[SequenceState, TargetGroup]
"""The targets that every sequence of a scoring stands for; reader and writer share it."""


def show(sequence: SequenceState, known: Mapping[int, int]) -> None:
    """Make positions of the current block known without scoring them."""
    for position, token in known.items():
        if position < sequence.stop:
            sequence.write(position, token)


@dataclass(frozen=True, slots=True)
class TargetReader:
    """Reads the most likely token, its probability, and the log probability of every target's token."""

    groups: TargetGroups
    mask_token: int | None
    mask_may_win: bool
    """True leaves MASK among the predictions, as the published evaluation does."""
    sees_the_best = True

    def read(self, logits_NV: Tensor, pieces: Sequence[Piece]) -> list[Predictions]:
        """Predictions with the log probabilities that the targets ask for."""
        if self.mask_token is not None and not self.mask_may_win:
            logits_NV[:, self.mask_token] = -torch.inf
        wanted = [self._wanted(piece.sequence, position) for piece in pieces for position in piece.reads]
        rows = [row for row, tokens in enumerate(wanted) for _ in tokens]
        columns = [token for tokens in wanted for token in tokens]
        entries = upload([rows, columns], logits_NV.device)
        logprobs = logits_NV[entries[0], entries[1]] - torch.logsumexp(logits_NV, dim=-1)[entries[0]]
        tokens_N, spread = most_likely(logits_NV)
        packed = torch.cat([tokens_N.float(), spread.doubts_N, logprobs]).tolist()
        count = len(wanted)
        values = iter(packed[2 * count :])
        by_token = [{token: next(values) for token in tokens} for tokens in wanted]
        confidences = [1 / (1 + doubt) for doubt in packed[count : 2 * count]]
        return _split([int(token) for token in packed[:count]], confidences, by_token, pieces)

    def _wanted(self, sequence: SequenceState, position: int) -> list[int]:
        tokens = (target.token_at(position) for target in self.groups[sequence].targets)
        return list(dict.fromkeys(token for token in tokens if token is not None))


def _split(
    tokens: list[int], confidences: list[float], logprobs: list[dict[int, float]], pieces: Sequence[Piece]
) -> list[Predictions]:
    parts, start = [], 0
    for piece in pieces:
        stop = start + len(piece.reads)
        parts.append(Predictions(tokens[start:stop], confidences[start:stop], (), logprobs[start:stop]))
        start = stop
    return parts


@dataclass(frozen=True, slots=True)
class Estimator:
    """How a step reveals targets."""

    name: str
    order: str = "confidence"

    def revealed(self, target: Target, positions: Sequence[int], predictions: Predictions) -> list[int]:
        """Indices of the positions that a denoising step reveals to a target."""
        own = [index for index, position in enumerate(positions) if position < target.end]
        if self.name == "onepass":
            return own
        if self.name == "chain" and self.order == "confidence":
            return [max(own, key=lambda index: predictions.confidences[index])]
        return own[:1]

    @property
    def first_only(self) -> bool:
        """Whether a target counts as scored after its first token."""
        return self.name == "first_token"

    def is_last_step(self, target: Target, sequence: SequenceState) -> bool:
        """Whether the next step that reveals some of a target reveals all that is left: it never parts from others."""
        if self.first_only or target.revealed + 1 >= len(target.tokens):
            return True
        # A block's first token may be read by itself, before the block is.
        reads_whole_block = sequence.source(sequence.known_until) >= sequence.start
        return self.name == "onepass" and reads_whole_block and target.end <= sequence.stop


@dataclass(frozen=True, slots=True)
class ScoringWriter:
    """The writer of a scoring: reveals the targets' own tokens; sequences whose targets part are forked."""

    groups: TargetGroups
    estimator: Estimator

    def slots(self, sequence: SequenceState) -> int:
        """One, or where targets may part, one for each way to go on."""
        estimator, has_mask = self.estimator, sequence.settings.family.has_mask
        ways = {
            target.tokens if has_mask else target.tokens[:-1]
            for target in self.groups[sequence].targets
            if not estimator.is_last_step(target, sequence)
        }
        return max(1, len(ways))

    def write(self, piece: Piece, predictions: Predictions) -> tuple[Writes, Sequence[SequenceState]]:
        """Show what the canvas shows, or reveal tokens; nothing of it is the model's own choice."""
        sequence, group = piece.sequence, self.groups[piece.sequence]
        if not sequence.settings.family.has_mask:
            return (), self._read_along(piece, predictions)
        if piece.kind in DENOISING and group.shown:
            show(sequence, group.shown)
            group.shown = {}
            return (), ()
        return (), self._reveal(piece, predictions) if piece.reads else ()

    def _reveal(self, piece: Piece, predictions: Predictions) -> list[SequenceState]:
        """Write each target's tokens; return the forks of targets that got others than the first ones."""
        sequence = piece.sequence
        alike: dict[tuple[tuple[int, int], ...], list[Target]] = {}
        for target in self.groups[sequence].targets:
            writes = self._score(target, piece, predictions)
            if not (target.is_done or self.estimator.first_only):
                alike.setdefault(writes, []).append(target)
        forks = [sequence.forked() for _ in range(len(alike) - 1)]
        if not alike:
            self._keep(sequence, [])
        for each, (writes, targets) in zip((sequence, *forks), alike.items(), strict=False):
            self._keep(each, targets)
            for position, token in writes:
                each.write(position, token)
            each.settle()
        return forks

    def _read_along(self, piece: Piece, predictions: Predictions) -> list[SequenceState]:
        """Score tokens that a prefill feeds as well; return the forks of targets that go on with other tokens."""
        sequence = piece.sequence
        alike: dict[tuple[int, ...], list[Target]] = {}
        for target in self.groups[sequence].targets:
            for index, position in enumerate(piece.reads):
                self._count(target, position, index, predictions)
            if not target.is_done:
                alike.setdefault(target.tokens[:-1], []).append(target)
        if not piece.is_last:
            return []
        forks = [sequence.forked() for _ in range(len(alike) - 1)]
        if not alike:
            self._keep(sequence, [])
        for each, (tokens, targets) in zip((sequence, *forks), alike.items(), strict=False):
            self._keep(each, targets)
            each.extend(tokens)
        return forks

    def _score(self, target: Target, piece: Piece, predictions: Predictions) -> tuple[tuple[int, int], ...]:
        """Count what this step reveals of a target; return the positions and tokens."""
        chosen = [0]
        if piece.kind in DENOISING:
            chosen = self.estimator.revealed(target, piece.reads, predictions)
        positions = [piece.reads[index] for index in chosen]
        tokens = [self._count(target, piece.reads[index], index, predictions) for index in chosen]
        return tuple(zip(positions, tokens, strict=True))

    def _count(self, target: Target, position: int, index: int, predictions: Predictions) -> int:
        """Count a target's token at a position in; return it."""
        token = target.token_at(position)
        assert token is not None
        target.reveal(predictions.logprobs[index][token], predictions.tokens[index] == token)
        return token

    def _keep(self, sequence: SequenceState, targets: list[Target]) -> None:
        """Go on with some targets only; without any the sequence is finished."""
        self.groups[sequence] = TargetGroup(targets)
        if targets:
            sequence.end = sequence.reads_until = max(target.end for target in targets)
        else:
            sequence.finish_reason = "scored"
