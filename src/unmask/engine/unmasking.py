"""What a generation writes after a forward: an unmasking rule chooses, and the sequence takes it.

Knows predictions and the state of one sequence. It does not know tensors, slots or other sequences.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from unmask.engine.rules import Rule, RuleView, make_rule
from unmask.engine.sampling import Predictions, uniform
from unmask.engine.schedule import Piece
from unmask.engine.sequence import SequenceState
from unmask.engine.step_plan import DENOISING
from unmask.errors import UnmaskError
from unmask.spec.family import FAST_DLLM_V2, Family
from unmask.spec.rule import MOST_STEPS, ScoreName

LOTS = 0x5DEECE66D

Writes = Sequence[tuple[int, int, float]]
"""Position, token and confidence of everything that becomes known."""


class Decider(Protocol):
    """Says what a forward makes known. The forward is counted already, nothing is written yet."""

    def denoised(self, sequence: SequenceState, positions: Sequence[int], predictions: Predictions) -> Writes:
        """Choose among the masked positions of a sub-block; must choose at least one."""
        ...

    def committed(self, sequence: SequenceState, position: int, predictions: Predictions) -> Writes:
        """Choose the token that follows a committed or prefilled block."""
        ...


class Predicted:
    """Takes those predictions that an unmasking rule chooses."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.score: ScoreName = getattr(rule, "score", "confidence")

    def denoised(self, sequence: SequenceState, positions: Sequence[int], predictions: Predictions) -> Writes:
        """Ask the rule; where it leaves steps idle their forwards, which could tell nothing new, are left out."""
        tokens, confidences = predictions.tokens, predictions.confidences
        scores, size = predictions.scores or confidences, len(sequence.sub_block)
        for _ in range(MOST_STEPS):
            view = RuleView(sequence.rule_steps - 1, size, scores, partial(_lot, sequence, positions))
            if chosen := self.rule.choose(view):
                return [(positions[index], tokens[index], confidences[index]) for index in chosen]
            sequence.rule_steps += 1
        raise UnmaskError(
            f"The unmasking rule has chosen nothing in {MOST_STEPS} steps; let it choose at least one position."
        )

    def committed(self, sequence: SequenceState, position: int, predictions: Predictions) -> Writes:  # noqa: ARG002
        """Take the only prediction."""
        return [(position, predictions.tokens[0], predictions.confidences[0])]


class ForcedTokens:
    """Writes what another decoding wrote, step by step, and counts how often the predictions agree with it.

    Two dtypes or policies can so be compared on exactly the same states.
    """

    def __init__(self, scripts: Mapping[int, Sequence[Sequence[tuple[int, int]]]]) -> None:
        self._steps = {index: iter(steps) for index, steps in scripts.items()}
        self.positions = 0
        self.agreed = 0

    def denoised(self, sequence: SequenceState, positions: Sequence[int], predictions: Predictions) -> Writes:
        """Write the script's next step."""
        read = zip(predictions.tokens, predictions.confidences, strict=True)
        predicted = dict(zip(positions, read, strict=True))
        writes: list[tuple[int, int, float]] = []
        for position, token in next(self._steps[sequence.index]):
            likeliest, confidence = predicted[position]
            self.positions += 1
            self.agreed += likeliest == token
            writes.append((position, token, confidence))
        return writes

    def committed(self, sequence: SequenceState, position: int, predictions: Predictions) -> Writes:
        """Write the script's next step."""
        return self.denoised(sequence, [position], predictions)


def _lot(sequence: SequenceState, positions: Sequence[int], place: int) -> float:
    """The lot of one masked position at a rule's step; other numbers than those that tokens are drawn by."""
    return uniform(sequence.seed ^ LOTS, positions[place], sequence.rule_steps)


def decider_of(rule: Any, family: Family = FAST_DLLM_V2) -> Decider:
    """What decides by a rule, however the rule is given: a spec, a mapping, an object, or a decider itself."""
    if callable(getattr(rule, "denoised", None)):
        decider: Decider = rule
        return decider
    return Predicted(make_rule(rule, family))


class UnmaskingWriter:
    """The writer of a generation: asks what to write, writes it, and lets the sequence settle."""

    def __init__(
        self,
        rule: Any,
        on_settled: Callable[[SequenceState], None] | None = None,
        family: Family = FAST_DLLM_V2,
    ) -> None:
        self.decider = decider_of(rule, family)
        self.score: ScoreName = getattr(self.decider, "score", "confidence")
        """What it needs of predictions beside tokens and confidences."""
        self.on_settled = on_settled
        """Called when a sequence's answer has grown; may finish the sequence (stop strings do)."""

    def slots(self, sequence: SequenceState) -> int:  # noqa: ARG002 (a generation never forks)
        """A generation keeps to one slot."""
        return 1

    def write(self, piece: Piece, predictions: Predictions) -> tuple[Writes, Sequence[SequenceState]]:
        """Write what becomes known."""
        sequence = piece.sequence
        if piece.kind in DENOISING and not piece.opens:
            writes = self.decider.denoised(sequence, piece.reads, predictions)
        else:
            writes = self.decider.committed(sequence, piece.reads[0], predictions) if piece.reads else ()
        for position, token, _ in writes:
            sequence.write(position, token)
        known = sequence.known_until
        sequence.settle()
        if self.on_settled and sequence.known_until > known:
            self.on_settled(sequence)
        return writes, ()
