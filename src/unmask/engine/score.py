"""Log likelihoods of targets behind prefixes, under any policy. The arithmetic is in scoring.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from unmask.cost import Ledger
from unmask.engine.decider import ByConfidence
from unmask.engine.policy import Full, Policy
from unmask.engine.row import BlockRules
from unmask.engine.score_row import Member, ScoreRow
from unmask.engine.scoring import Estimator, ScoringDecoder, TargetReader
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec

if TYPE_CHECKING:
    from unmask.engine.engine import Engine

EstimatorName = Literal["chain", "canvas", "first_token", "onepass"]
Order = Literal["confidence", "left_to_right"]


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """How likely is `target` after `prefix`? Both are token ids and not empty."""

    prefix: Sequence[int]
    target: Sequence[int]


@dataclass(frozen=True, slots=True)
class Score:
    """The answer to one request."""

    logprob: float
    is_greedy: bool
    """Whether the estimator's own sampler, taking the most likely token each time, would write the target."""
    group: int
    """Requests of one group share their prefix, its forwards and a ledger."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The answers in the order of the requests, and the work they took."""

    scores: list[Score]
    ledgers: list[Ledger]
    """One for each group."""
    inactive: str | None
    """Why the policy could not act, where it did not."""


def score(
    engine: "Engine",
    requests: Sequence[ScoreRequest],
    estimator: EstimatorName = "chain",
    order: Order = "confidence",
    decode: DecodeSpec | None = None,
    policy: Policy | None = None,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Score every request; `progress` is told how many requests each finished row has settled."""
    if estimator not in get_args(EstimatorName):
        raise UnmaskError(f"{estimator!r} is no estimator; use one of {', '.join(get_args(EstimatorName))}.")
    if order not in get_args(Order):
        raise UnmaskError(f"{order!r} is no order; use confidence or left_to_right.")
    spec = decode or DecodeSpec()
    members = [_member(index, request, engine, estimator) for index, request in enumerate(requests)]
    if not isinstance(batch_size, int) or batch_size < 1:
        raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1.")
    rows = _rows(requests, members, _rules(engine, spec, estimator), engine, estimator, batch_size)
    ledgers = [row.ledger for row in rows]
    groups = {member.index: row.index for row in rows for member in row.members}
    chosen = policy or Full()
    _decode(engine, rows, chosen, Estimator(estimator, order), batch_size, progress)
    scores = [Score(member.logprob, member.is_greedy, groups[member.index]) for member in members]
    return Scores(scores, ledgers, _why_inactive(chosen, ledgers, estimator, requests))


@torch.inference_mode()
def _decode(
    engine: "Engine",
    rows: list[ScoreRow],
    policy: Policy,
    estimator: Estimator,
    batch_size: int,
    progress: Callable[[int], None] | None,
) -> None:
    if not rows:
        return
    size = rows[0].rules.block_size
    columns = max(-(-row.end // size) * size for row in rows)
    slots = max(
        min(batch_size, sum(len(row.members) for row in rows)), *(len(row.members) for row in rows), 1
    )
    workspace = engine.workspace(slots, columns, size)
    reader = TargetReader(engine.mask_token, mask_may_win=estimator.name == "first_token")
    decoder = ScoringDecoder(workspace, policy, ByConfidence(1.0), reader, estimator=estimator)
    waiting = {row.index: len(row.members) for row in rows}
    for event in decoder.run(sorted(rows, key=lambda row: -row.end)):
        if (
            progress
            and isinstance(event, ScoreRow)
            and all(row.index != event.index for row in decoder.active)
        ):
            progress(waiting.pop(event.index))


def _rules(engine: "Engine", spec: DecodeSpec, estimator: EstimatorName) -> BlockRules:
    """Whole blocks compete at once where an estimator looks at a block as one."""
    size = spec.resolved_block_size(engine.config.block_size)
    sub_block = spec.sub_block_size if estimator == "chain" else size
    cache = spec.block_cache or estimator == "canvas"
    return BlockRules(size, sub_block, cache, engine.mask_token, frozenset())


def _member(index: int, request: ScoreRequest, engine: "Engine", estimator: EstimatorName) -> Member:
    if not isinstance(request, ScoreRequest):
        raise UnmaskError("A score needs a ScoreRequest with the token ids of a prefix and a target.")
    prefix, target = request.prefix, tuple(request.target)
    if not prefix or not target:
        raise UnmaskError("A prefix and a target must have at least one token each.")
    context, vocabulary = engine.config.max_positions, engine.config.vocab_size
    if len(prefix) + len(target) > context:
        raise UnmaskError(
            f"Prefix and target have {len(prefix) + len(target)} tokens but the model's context is {context}."
        )
    if not all(0 <= token < vocabulary for token in (*prefix, *target)):
        raise UnmaskError(f"A token id is outside the vocabulary of {vocabulary} tokens.")
    if estimator == "canvas" and len(target) > 1:
        raise UnmaskError(
            f"canvas scores single tokens, but a target has {len(target)}; use the estimator chain for such a task."
        )
    return Member(index, target, len(prefix))


def _rows(
    requests: Sequence[ScoreRequest],
    members: list[Member],
    rules: BlockRules,
    engine: "Engine",
    estimator: EstimatorName,
    batch_size: int,
) -> list[ScoreRow]:
    """One row for each prefix (and, where the rest of a target is visible, for each such rest).

    A row may fork until each member has a slot of its own, so it has at most `batch_size` members.
    """
    families: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Member]] = {}
    for request, member in zip(requests, members, strict=True):
        rest = member.tokens[1:] if estimator == "first_token" else ()
        families.setdefault((tuple(request.prefix), rest), []).append(member)
    rows: list[ScoreRow] = []
    for (prefix, rest), family in families.items():
        for start in range(0, len(family), batch_size):
            part = family[start : start + batch_size]
            row = ScoreRow(len(rows), prefix, part, rules, engine.config.num_layers)
            _show_known(row, rest, engine, estimator)
            rows.append(row)
    return rows


def _show_known(row: ScoreRow, rest: tuple[int, ...], engine: "Engine", estimator: EstimatorName) -> None:
    """What the published evaluation lets the answer see: the rest of its target and an end token."""
    first = row.prompt_length
    if estimator not in ("canvas", "first_token") or first % row.rules.block_size == 0:
        return
    if not engine.config.stop_tokens:
        raise UnmaskError(f"{estimator} shows an end token behind the answer, but the checkpoint names none.")
    known = dict(enumerate((*rest, engine.config.stop_tokens[0]), start=first + 1))
    if estimator == "first_token":
        row.show(known)
        row.end = first + 1
    else:
        row.shown = {column: token for column, token in known.items() if column < row.stop}


def _why_inactive(
    policy: Policy, ledgers: list[Ledger], estimator: EstimatorName, requests: Sequence[ScoreRequest]
) -> str | None:
    if isinstance(policy, Full) or any(ledger.reuse_fraction() > 0 for ledger in ledgers):
        return None
    if estimator in ("first_token", "onepass"):
        return f"{estimator} takes one step a block, so there is no earlier step to reuse"
    if estimator == "chain" and all(len(request.target) == 1 for request in requests):
        return "single-token targets take one step, so there is no earlier step to reuse"
    return "no step met the policy's conditions"
