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
        scored: Callable[[int, Score], None],
        worked: Callable[[Sequence[int], Ledger, str | None], None],
        progress: Callable[[int], None],
    ) -> None:
        """Score all requests.

        `scored` is told the place of each request and its score; `worked` the places that shared a ledger,
        the ledger, and why the policy could not act, if it could not.
        """
        for places in self._parts(requests):
            part = [requests[place] for place in places]
            found = self.meter.scored(lambda part=part: self._score(part, progress), _tokens(part))  # type: ignore[misc]
            members: list[list[int]] = [[] for _ in found.ledgers]
            for place, score in zip(places, found.scores, strict=True):
                if not math.isfinite(score.logprob):
                    raise UnmaskError(
                        f"A log likelihood is {score.logprob}; the model's logits are not finite, so use float32."
                    )
                members[score.group].append(place)
                scored(place, score)
            for shared, ledger in zip(members, found.ledgers, strict=True):
                worked(shared, ledger, found.inactive)

    def _score(self, part: Sequence[ScoreRequest], progress: Callable[[int], None]) -> Any:
        return self.engine.score(
            part, self.estimator, self.order, self.decode, self.policy, self.batch_size, progress
        )

    def _parts(self, requests: Sequence[ScoreRequest]) -> Iterator[list[int]]:
        families: dict[tuple[int, ...], list[int]] = {}
        for place, request in enumerate(requests):
            families.setdefault(tuple(request.prefix), []).append(place)
        part: list[int] = []
        for _, family in sorted(families.items(), key=lambda item: -len(item[0])):
            part += family
            if len(part) >= PART * self.batch_size:
                yield part
                part = []
        if part:
            yield part


def _tokens(requests: Sequence[ScoreRequest]) -> int:
    return sum(len(request.target) for request in requests)
