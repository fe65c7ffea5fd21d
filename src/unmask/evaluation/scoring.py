"""Log likelihoods for a benchmark: requests with equal prefixes kept together, the longest first, in parts.

A part is scored at a time, so that its answers can be kept should a later one fail.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unmask.cost import Ledger
from unmask.engine.engine import Engine
from unmask.engine.score import EstimatorName, Order, Score, ScoreRequest
from unmask.errors import UnmaskError
from unmask.evaluation.throughput import Meter
from unmask.spec import DecodeSpec

PART = 32
"""Batches of one part."""
Family = list[int]
"""Places of the requests that share a prefix."""


def families_of(requests: Sequence[ScoreRequest]) -> list[Family]:
    """Requests with equal prefixes together, the longest prefix first."""
    found: dict[tuple[int, ...], Family] = {}
    for place, request in enumerate(requests):
        found.setdefault(tuple(request.prefix), []).append(place)
    return [family for _, family in sorted(found.items(), key=lambda item: -len(item[0]))]


@dataclass(frozen=True, slots=True)
class Scorer:
    """The engine's scorer with the settings of a run."""

    engine: Engine
    decode: DecodeSpec
    policy: Any
    estimator: EstimatorName
    order: Order
    batch_size: int
    meter: Meter

    def run(
        self,
        requests: Sequence[ScoreRequest],
        families: Sequence[Family],
        scored: Callable[[Family, list[Score], Ledger, str | None], None],
        progress: Callable[[int], None],
    ) -> None:
        """Score these families; `scored` is told each one's scores and work, and why the policy was idle if so."""
        for part in _filled(families, PART * self.batch_size):
            asked = [requests[place] for family in part for place in family]
            found = self.meter.scored(lambda asked=asked: self._score(asked, progress), target_tokens(asked))  # type: ignore[misc]
            scores = iter(found.scores)
            for family in part:
                mine = [_finite(next(scores)) for _ in family]
                ledger = Ledger(self.engine.config.num_layers)
                for group in {score.group for score in mine}:
                    ledger = ledger.merged(found.ledgers[group])
                scored(family, mine, ledger, found.inactive)

    def _score(self, part: Sequence[ScoreRequest], progress: Callable[[int], None]) -> Any:
        return self.engine.score(
            part, self.estimator, self.order, self.decode, self.policy, self.batch_size, progress
        )


def _filled(families: Sequence[Family], at_least: int) -> Iterator[list[Family]]:
    part: list[Family] = []
    for family in families:
        part.append(family)
        if sum(map(len, part)) >= at_least:
            yield part
            part = []
    if part:
        yield part


def _finite(score: Score) -> Score:
    if not math.isfinite(score.logprob):
        raise UnmaskError(
            f"A log likelihood is {score.logprob}; the model's logits are not finite, so use float32."
        )
    return score


def target_tokens(requests: Sequence[ScoreRequest]) -> int:
    """Tokens that are scored."""
    return sum(len(request.target) for request in requests)
