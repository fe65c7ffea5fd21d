"""What is written after a denoising step: the sampler's own choice, or a script played again."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from unmask.engine.row import Row
from unmask.engine.sampling import Candidates, accepted

Writes = list[tuple[int, int, float]]
"""Column, token and confidence of each position that becomes known."""


class Decider(Protocol):
    """Chooses what a step makes known."""

    def denoised(self, row: Row, columns: Sequence[int], found: Candidates) -> Writes:
        """Choose among the masked columns of a sub-block; must choose at least one."""
        ...

    def committed(self, row: Row, column: int, found: Candidates) -> Writes:
        """Choose the token that follows a committed or prefilled block."""
        ...


class ByConfidence:
    """The published rule: everything above the threshold, and the best in any case."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def denoised(self, row: Row, columns: Sequence[int], found: Candidates) -> Writes:  # noqa: ARG002
        """Unmask what is confident enough."""
        chosen = accepted(found.confidences, self.threshold)
        return [(columns[i], found.tokens[i], found.confidences[i]) for i in chosen]

    def committed(self, row: Row, column: int, found: Candidates) -> Writes:  # noqa: ARG002
        """Take the only candidate."""
        return [(column, found.tokens[0], found.confidences[0])]


class Scripted:
    """Writes what another decoding wrote, step by step, and counts how often the candidates agree with it.

    Two dtypes or policies can so be compared on exactly the same states.
    """

    def __init__(self, scripts: Mapping[int, Sequence[Sequence[tuple[int, int]]]]) -> None:
        self._steps = {index: iter(steps) for index, steps in scripts.items()}
        self.positions = 0
        self.agreed = 0

    def denoised(self, row: Row, columns: Sequence[int], found: Candidates) -> Writes:
        """Write the script's next step."""
        proposals = dict(zip(columns, zip(found.tokens, found.confidences, strict=True), strict=True))
        writes: Writes = []
        for column, token in next(self._steps[row.index]):
            proposal, confidence = proposals[column]
            self.positions += 1
            self.agreed += proposal == token
            writes.append((column, token, confidence))
        return writes

    def committed(self, row: Row, column: int, found: Candidates) -> Writes:
        """Write the script's next step."""
        return self.denoised(row, [column], found)
