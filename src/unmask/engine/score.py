"""Log likelihoods of targets behind prefixes, under any policy. The arithmetic is in scoring.py."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import torch

from unmask.cost import Ledger, Sharing
from unmask.engine.decode import Decoder
from unmask.engine.halving import halved
from unmask.engine.monte_carlo import drawn, estimate
from unmask.engine.policy import NO_STEPS, Full, Policy, no_step_to_reuse
from unmask.engine.scoring import (
    Estimator,
    ScoringWriter,
    Target,
    TargetGroup,
    TargetGroups,
    TargetReader,
    show,
)
from unmask.engine.sequence import BlockSettings, SequenceState, room_for
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec
from unmask.spec.family import CacheName, EstimatorName
from unmask.spec.recipe import OrderName

if TYPE_CHECKING:
    from unmask.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """How likely is `target` after `prefix`? Both are token ids and not empty."""

    prefix: Sequence[int]
    """Token ids in front of the target."""
    target: Sequence[int]
    """Token ids to be scored."""


@dataclass(frozen=True, slots=True)
class Score:
    """The answer to one request."""

    logprob: float
    """Log likelihood of the target."""
    is_greedy: bool
    """Whether the estimator's own sampler, taking the most likely token each time, would write the target."""
    group: int
    """Requests of one group share their prefix, its forwards and a ledger."""
    stderr: float | None = None
    """The standard error of an estimated log likelihood; None where it is computed and not estimated."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The answers in the order of the requests, and the work they took."""

    scores: list[Score]
    """One score for each request, in their order."""
    ledgers: list[Ledger]
    """One for each group."""
    sharing: list[Sharing]
    """What other groups, and the members of the same group, spared each group."""
    inactive: str | None
    """Why the policy could not act, where it did not."""


def score(
    engine: "Engine",
    requests: Sequence[ScoreRequest],
    estimator: EstimatorName = "chain",
    order: OrderName = "confidence",
    decode: DecodeSpec | None = None,
    policy: Policy | None = None,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Score every request; `progress` is called with the number of requests that each finished sequence has settled."""
    if estimator not in get_args(EstimatorName):
        raise UnmaskError(f"{estimator!r} is no estimator; use one of {', '.join(get_args(EstimatorName))}.")
    if order not in get_args(OrderName):
        raise UnmaskError(f"{order!r} is no order; use confidence or left_to_right.")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1.")
    engine.config.family.check_estimator(estimator)
    targets = [_target(index, request, engine, estimator) for index, request in enumerate(requests)]
    if estimator == "monte_carlo":
        return _estimated(engine, requests, decode or DecodeSpec(), policy or Full(), batch_size, progress)
    settings = _settings(engine, decode or DecodeSpec(), estimator)
    chosen, ways = policy or Full(), Estimator(estimator, order)
    scores: dict[int, Score] = {}
    ledgers: list[Ledger] = []
    sharing: list[Sharing] = []
    while targets:
        groups = _groups(requests, targets, settings, engine, ways, batch_size)
        members = {sequence.index: group.targets for sequence, group in groups.items()}
        origins = list(groups)
        writer = ScoringWriter(groups, ways)
        slots = min(batch_size, sum(map(writer.slots, origins)))
        settled: set[int] = set()
        try:
            for number in _decode(engine, writer, chosen, slots):
                settled.add(number)
                if progress:
                    progress(len(members[number]))
        except RuntimeError as error:
            batch_size = halved(slots, error)
        for sequence in origins:
            if sequence.index in settled:
                scores |= {
                    target.index: Score(target.logprob, target.is_greedy, len(ledgers))
                    for target in members[sequence.index]
                }
                ledgers.append(sequence.ledger)
                sharing.append(sequence.sharing)
        targets = [
            Target(each.index, each.tokens, each.first) for each in targets if each.index not in scores
        ]
    in_order = [scores[index] for index in range(len(requests))]
    idle = None if engine.config.family.has_mask else NO_STEPS
    return Scores(in_order, ledgers, sharing, _why_inactive(chosen, ledgers, estimator, requests, idle))


def _estimated(
    engine: "Engine",
    requests: Sequence[ScoreRequest],
    decode: DecodeSpec,
    policy: Policy,
    batch_size: int,
    progress: Callable[[int], None] | None,
) -> Scores:
    """Score by random masks; every request is a group of its own, and no step follows another."""
    likelihood = engine.config.family.likelihood
    assert likelihood is not None, "the family says that it can be scored so"
    ends = _ends(engine, "monte_carlo")
    draws = [drawn(likelihood, request, decode.draws, decode.seed) for request in requests]
    ended = [ScoreRequest(request.prefix, (*request.target, *ends)) for request in requests]
    estimates = estimate(engine, ended, draws, decode, batch_size, progress)
    scores = [Score(each.logprob, False, index, each.stderr) for index, each in enumerate(estimates)]
    ledgers, sharing = [each.ledger for each in estimates], [each.sharing for each in estimates]
    inactive = None if isinstance(policy, Full) else no_step_to_reuse("monte_carlo", single_tokens=False)
    return Scores(scores, ledgers, sharing, inactive)


@torch.inference_mode()
def _decode(engine: "Engine", writer: ScoringWriter, policy: Policy, slots: int) -> Iterator[int]:
    """Yield the number of each group when all its targets are scored."""
    groups, estimator = writer.groups, writer.estimator
    sequences = sorted(groups, key=lambda sequence: -sequence.end)
    length, size = room_for(sequences)
    workspace = engine.workspace(slots * sequences[0].settings.slots, length, size)
    reader = TargetReader(groups, engine.mask_token, mask_may_win=estimator.first_only)
    decoder = Decoder(workspace, policy, writer, reader)
    for event in decoder.run(sequences):
        if isinstance(event, SequenceState):
            forks_are_done = all(sequence.index != event.index for sequence in decoder.active)
            if forks_are_done:
                yield event.index


def _settings(engine: "Engine", spec: DecodeSpec, estimator: EstimatorName) -> BlockSettings:
    """Whole blocks compete at once where an estimator looks at a block as one."""
    spec = engine.config.decoded(spec)
    size, family = spec.block_size, engine.config.family
    sub_block = spec.sub_block_size if estimator == "chain" else size
    cache: CacheName = spec.cache if estimator == "chain" or not family.canvas else "none"
    if estimator == "canvas":
        cache = "dual"
    return BlockSettings(
        size, sub_block, cache, engine.mask_token, frozenset(), family, spec.refresh_every, spec.guidance
    )


def _ends(engine: "Engine", estimator: EstimatorName) -> tuple[int, ...]:
    """The end token that some publishers' estimates put behind every target."""
    likelihood = engine.config.family.likelihood
    shown = estimator == "monte_carlo" and likelihood is not None and likelihood.ends
    return engine.config.stop_tokens[:1] if shown else ()


def _target(index: int, request: ScoreRequest, engine: "Engine", estimator: EstimatorName) -> Target:
    if not isinstance(request, ScoreRequest):
        raise UnmaskError("A score needs a ScoreRequest with the token ids of a prefix and a target.")
    prefix, target = request.prefix, tuple(request.target)
    if not prefix or not target:
        raise UnmaskError("A prefix and a target must have at least one token each.")
    context, vocabulary = engine.config.max_positions, engine.config.vocab_size
    length = len(prefix) + len(target) + len(_ends(engine, estimator))
    if length > context:
        raise UnmaskError(f"Prefix and target have {length} tokens but the model's context is {context}.")
    if not all(0 <= token < vocabulary for token in (*prefix, *target)):
        raise UnmaskError(f"A token id is outside the vocabulary of {vocabulary} tokens.")
    if estimator == "canvas" and len(target) > 1:
        raise UnmaskError(
            f"canvas scores single tokens, but a target has {len(target)}; use the estimator chain for such a task."
        )
    return Target(index, target, len(prefix))


def _groups(
    requests: Sequence[ScoreRequest],
    targets: list[Target],
    settings: BlockSettings,
    engine: "Engine",
    estimator: Estimator,
    batch_size: int,
) -> TargetGroups:
    """One sequence for each prefix (and, where the rest of a target is visible, for each such rest).

    A sequence may fork until each target has a slot of its own, so it stands for at most `batch_size` targets,
    unless all of them are scored in one step.
    """
    alike: dict[tuple[tuple[int, ...], tuple[int, ...], int], list[Target]] = {}
    for target in targets:
        rest = target.tokens[1:] if estimator.first_only else ()
        # On a canvas every position sees how long the target is.
        length = len(target.tokens) if engine.config.family.canvas else 0
        alike.setdefault((tuple(requests[target.index].prefix), rest, length), []).append(target)
    groups: TargetGroups = {}
    for (prefix, rest, _), all_targets in alike.items():
        one_step = estimator.first_only or all(len(target.tokens) == 1 for target in all_targets)
        most = len(all_targets) if one_step else batch_size
        for start in range(0, len(all_targets), most):
            group = TargetGroup(all_targets[start : start + most])
            longest = max(len(target.tokens) for target in group.targets)
            sequence = SequenceState(len(groups), prefix, longest, settings, engine.config.num_layers)
            sequence.reads_until = sequence.end
            if (
                not engine.config.family.has_mask
                and len(rests := {target.tokens[:-1] for target in group.targets}) == 1
            ):
                sequence.extend(*rests)
            _show_known(sequence, group, rest, engine, estimator.name)
            groups[sequence] = group
    return groups


def _show_known(
    sequence: SequenceState,
    group: TargetGroup,
    rest: tuple[int, ...],
    engine: "Engine",
    estimator: str,
) -> None:
    """What the published evaluation lets the answer see: the rest of its target and an end token."""
    first = sequence.prompt_length
    if estimator not in ("canvas", "first_token") or sequence.source(first) < sequence.start:
        return
    if not engine.config.stop_tokens:
        raise UnmaskError(f"{estimator} shows an end token behind the answer, but the checkpoint names none.")
    known = dict(enumerate((*rest, engine.config.stop_tokens[0]), start=first + 1))
    if estimator == "first_token":
        show(sequence, known)
        sequence.end = sequence.reads_until = first + 1
    else:
        group.shown = {position: token for position, token in known.items() if position < sequence.stop}


def _why_inactive(
    policy: Policy,
    ledgers: list[Ledger],
    estimator: EstimatorName,
    requests: Sequence[ScoreRequest],
    idle: str | None,
) -> str | None:
    if isinstance(policy, Full) or any(ledger.reuse_fraction() > 0 for ledger in ledgers):
        return None
    single_tokens = all(len(request.target) == 1 for request in requests)
    return idle or no_step_to_reuse(estimator, single_tokens) or "no step met the policy's conditions"
