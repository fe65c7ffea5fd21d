"""The publishers' estimate of log likelihoods: targets of which a random part is masked, read in one step.

Each draw masks some tokens of a target, shows the others and the prefix, and sums the log probabilities of the masked
ones over the share that was to be masked; the mean over draws is the estimate. Every draw is one full-block step, so
there is nothing that a policy could reuse. Draws that mask the same tokens share their forward.

Which tokens are drawn depends on the request and the seed alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from unmask.cost import Ledger, Sharing
from unmask.engine.decode import Decoder
from unmask.engine.halving import halved
from unmask.engine.policy import Full
from unmask.engine.sampling import request_seed
from unmask.engine.scoring import Estimator, ScoringWriter, Target, TargetGroup, TargetGroups, TargetReader
from unmask.engine.sequence import BlockSettings, SequenceState, room_for
from unmask.spec import DecodeSpec
from unmask.spec.family import Likelihood

if TYPE_CHECKING:
    from unmask.engine.engine import Engine
    from unmask.engine.score import ScoreRequest

SMALLEST_SHARE = 1e-3
"""Of what is masked where each token is masked with a drawn probability, as published."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What one draw masks."""

    masked: tuple[int, ...]
    """Places of the target."""
    share: float
    """What the sum over them is divided by."""


@dataclass(slots=True)
class Estimate:
    """The estimate for one request."""

    logprob: float
    stderr: float
    """Standard error of the mean over draws, as if they were independent."""
    ledger: Ledger
    sharing: Sharing


@dataclass(slots=True)
class _Question:
    """One request with its draws, and what was found of each set of masked tokens."""

    prefix: Sequence[int]
    target: tuple[int, ...]
    draws: Sequence[Draw]
    ledger: Ledger
    sharing: Sharing = field(default_factory=Sharing)
    found: dict[tuple[int, ...], Target] = field(default_factory=dict)

    def estimate(self) -> Estimate:
        """The mean over draws; a draw that masks nothing counts as zero."""
        sums = {masked: target.logprob for masked, target in self.found.items()}
        values = [sums.get(draw.masked, 0.0) / draw.share for draw in self.draws]
        mean = math.fsum(values) / len(values)
        spread = math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
        return Estimate(mean, math.sqrt(spread / len(values)), self.ledger, self.sharing)


def estimate(
    engine: "Engine",
    requests: Sequence["ScoreRequest"],
    draws: Sequence[Sequence[Draw]],
    decode: DecodeSpec,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> list[Estimate]:
    """Estimate the log likelihood of every request from given draws."""
    spec, family = engine.config.decoded(decode), engine.config.family
    settings = BlockSettings(
        None, None, "none", engine.mask_token, frozenset(), family, guidance=spec.guidance
    )
    layers = engine.config.num_layers
    questions = [
        _Question(request.prefix, tuple(request.target), of_request, Ledger(layers))
        for request, of_request in zip(requests, draws, strict=True)
    ]
    groups: TargetGroups = {}
    for number, each in enumerate(questions):
        for masked in dict.fromkeys(draw.masked for draw in each.draws if draw.masked):
            sequence = _sequence(number, each, masked, settings, layers)
            groups[sequence] = TargetGroup([each.found[masked]])
    _run(engine, groups, batch_size, progress, [len(each.found) for each in questions])
    return [each.estimate() for each in questions]


def _sequence(
    number: int, question: _Question, masked: tuple[int, ...], settings: BlockSettings, layers: int
) -> SequenceState:
    """Prefix and target with some of the target unknown."""
    sequence = SequenceState(number, question.prefix, len(question.target), settings, layers)
    sequence.ledger, sequence.sharing = question.ledger, question.sharing
    target = Target(number, question.target, sequence.prompt_length)
    target.revealed = len(question.target) - len(masked)
    question.found[masked] = target
    for place in set(range(len(question.target))).difference(masked):
        sequence.write(sequence.prompt_length + place, question.target[place])
    return sequence


@torch.inference_mode()
def _run(
    engine: "Engine",
    groups: TargetGroups,
    batch_size: int,
    progress: Callable[[int], None] | None,
    left: list[int],
) -> None:
    """Take every sequence's only step."""
    if progress and left.count(0):
        progress(left.count(0))
    if not groups:
        return
    waiting = dict.fromkeys(sorted(groups, key=lambda sequence: -sequence.end))
    length, size = room_for(list(waiting))
    reader = TargetReader(groups, engine.mask_token, mask_may_win=True)
    writer = ScoringWriter(groups, Estimator("onepass"))
    while waiting:
        slots = min(batch_size, len(waiting))
        try:
            workspace = engine.workspace(slots * next(iter(waiting)).settings.slots, length, size)
            for event in Decoder(workspace, Full(), writer, reader).run(list(waiting)):
                if isinstance(event, SequenceState):
                    del waiting[event]
                    left[event.index] -= 1
                    if progress and not left[event.index]:
                        progress(1)
        except RuntimeError as error:
            batch_size = halved(slots, error)


def drawn(likelihood: Likelihood, request: "ScoreRequest", count: int, seed: int) -> list[Draw]:
    """What the draws for a request mask, spread evenly over how much is masked, as published."""
    tokens = [*request.prefix, *request.target]
    stream = np.random.Generator(np.random.PCG64(request_seed(seed, tokens, len(request.prefix))))
    length = len(request.target)
    return (_by_count if likelihood.masks == "count" else _by_share)(stream, length, count)


def _by_count(stream: np.random.Generator, length: int, count: int) -> list[Draw]:
    """Numbers of masked tokens that go round from a drawn one, each at random places."""
    first = int(stream.integers(1, length + 1))
    numbers = [(round(first + place * length / count) - 1) % length + 1 for place in range(count)]
    return [
        Draw(tuple(sorted(map(int, stream.permutation(length)[:number]))), number / length)
        for number in numbers
    ]


def _by_share(stream: np.random.Generator, length: int, count: int) -> list[Draw]:
    """Probabilities that go round from a drawn one; each token is masked with it."""
    first = float(stream.random())
    shares = [(1 - SMALLEST_SHARE) * ((first + place / count) % 1) + SMALLEST_SHARE for place in range(count)]
    return [Draw(tuple(map(int, np.flatnonzero(stream.random(length) < share))), share) for share in shares]
