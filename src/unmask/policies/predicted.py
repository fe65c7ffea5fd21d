"""What a decoding should reach on a named card: a rehearsal, priced by cost/prediction.py."""

from dataclasses import dataclass, replace

from unmask.cost.cards import Card
from unmask.cost.prediction import BoundBy, load_of, predict
from unmask.cost.shape import ModelShape
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec import AnyPolicySpec, FullSpec


@dataclass(frozen=True, slots=True)
class Speed:
    """A predicted decoding."""

    tokens_per_second: float
    """Of all requests of the batch together, prefill included."""
    share: float
    """Of the speed that the data sheet's rates allow."""
    bound_by: BoundBy
    """Where most of the time goes."""


def predicted_speed(
    shape: ModelShape, script: Script, card: Card, batch: int, spec: AnyPolicySpec | None = None
) -> Speed:
    """A batch of equal requests in phase.

    Where it is not known whether a step makes the leftmost position known, half of the decodings always do and half
    never.
    """
    known = script.leftmost is not None
    scripts = [script] if known else [replace(script, leftmost=(always,)) for always in (True, False)]
    policy = make_policy(spec or FullSpec(), shape.layers)
    seconds = limit = 0.0
    where: dict[BoundBy, float] = {}
    for each in scripts:
        for work, count in rehearse(policy, shape.layers, each).entries.items():
            expected = predict(load_of(work, shape, batch), card)
            seconds += count * expected.seconds
            limit += count * expected.limit_seconds
            where[expected.bound_by] = where.get(expected.bound_by, 0.0) + count * expected.seconds
    tokens = batch * script.new_tokens * len(scripts)
    return Speed(tokens / seconds, limit / seconds, max(where, key=lambda name: where[name]))
