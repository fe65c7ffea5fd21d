"""Unmasking rules: which of a sub-block's predictions a step makes known.

A rule is a pure function of the step's number, the size of the sub-block and, for its masked positions, scores and
lots, all of them numbers on the host. It keeps no state and knows neither tokens nor tensors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import index
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.spec.build import shown
from unmask.spec.family import FAST_DLLM_V2, Family
from unmask.spec.own_code import RULE, guarded, made_of
from unmask.spec.rule import (
    AnyRuleSpec,
    CustomRuleSpec,
    EntropyBoundSpec,
    FactorSpec,
    OriginSpec,
    OverdueSpec,
    RandomSpec,
    RuleSpec,
    ScoreName,
    SequentialSpec,
    ShareSpec,
    ThresholdSpec,
    TopNSpec,
    rule_spec,
)

Lots = Callable[[int], float]
"""A number in [0, 1) for the position of each score; it depends on request, position and step alone."""


def _no_lots(place: int) -> float:
    raise UnmaskError(f"No lot was drawn for position {place}; give RuleView a function that draws lots.")


SMALLEST_LOT = 2.0**-24
"""A lot may be 0, which has no logarithm."""


class RuleView(NamedTuple):
    """All that a rule may know of a step."""

    step: int
    """Steps that this sub-block has seen before."""
    size: int
    """Positions of the sub-block, those that are known included."""
    scores: Sequence[float]
    """The score of every masked position, from left to right; higher is surer. There is at least one."""
    lot: Lots = _no_lots


class Rule(Protocol):
    """Chooses what a step makes known."""

    score: ScoreName
    """What the rule reads: nothing else is computed."""

    def choose(self, view: RuleView) -> Sequence[int]:
        """Indices of the scores of those positions that become known, in rising order.

        An empty answer leaves the step idle: the rule is asked again with the next step's number, on the same scores.
        """
        ...


def best(scores: Sequence[float], count: int) -> list[int]:
    """Indices of the `count` highest scores, in rising order; of equal ones the leftmost come first."""
    if count == 1:
        return [scores.index(max(scores))]
    if count >= len(scores):
        return list(range(len(scores)))
    return sorted(ranked(scores)[:count])


def ranked(scores: Sequence[float]) -> list[int]:
    """All indices, the highest score first; of equal ones the leftmost."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def quota(view: RuleView, n: int | None, steps: int | None) -> int:
    """Positions that a step writes: n of them, or its even share of the sub-block; at least one."""
    if steps is None:
        return n or 1
    share, rest = divmod(view.size, steps)
    return max(1, share + (view.step < rest))


class Threshold:
    """Everything above the threshold, and the best up to the quota in any case."""

    score: ScoreName = "confidence"

    def __init__(self, spec: ThresholdSpec, inclusive: bool = False) -> None:
        # What equals an inclusive threshold is greater than the next smaller number.
        self.threshold = math.nextafter(spec.threshold, 0) if inclusive else spec.threshold
        self.steps = spec.steps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take what is confident enough, or else the quota."""
        scores, threshold = view.scores, self.threshold
        above = [place for place, score in enumerate(scores) if score > threshold]
        needed = 1 if self.steps is None else quota(view, None, self.steps)
        return above if len(above) >= needed else best(scores, needed)


class TopN:
    """The best positions by a score, as many at every step."""

    def __init__(self, spec: TopNSpec) -> None:
        self.score = spec.score
        self.n, self.steps = spec.n, spec.steps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take the best."""
        return best(view.scores, quota(view, self.n, self.steps))


class Sequential:
    """The leftmost positions, as many at every step."""

    score: ScoreName = "confidence"

    def __init__(self, spec: SequentialSpec) -> None:
        self.n, self.steps = spec.n, spec.steps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take the first."""
        return range(min(len(view.scores), quota(view, self.n, self.steps)))


class EntropyBound:
    """The most certain positions while the running sum of their entropies is below the bound."""

    score: ScoreName = "entropy"

    def __init__(self, spec: EntropyBoundSpec) -> None:
        self.bound = spec.bound

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take positions while what they add up to is below the bound."""
        order, total, count = ranked(view.scores), 0.0, 0
        for place in order:
            total -= view.scores[place]
            if total >= self.bound:
                break
            count += 1
        return sorted(order[: max(1, count)])


class Factor:
    """Confidences that suffice for as many positions as are written together."""

    score: ScoreName = "confidence"

    def __init__(self, spec: FactorSpec) -> None:
        self.factor = spec.factor

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take ranks while each is confident enough; the published rule takes the last one with all others."""
        order = ranked(view.scores)
        passed = 1
        while passed < len(order) and view.scores[order[passed]] >= 1 - self.factor / (passed + 2):
            passed += 1
        return sorted(order if passed >= len(order) - 1 else order[:passed])


class Random:
    """Positions by lot, as many at every step."""

    score: ScoreName = "confidence"

    def __init__(self, spec: RandomSpec) -> None:
        self.n, self.steps = spec.n, spec.steps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take those with the highest lots."""
        lots = [view.lot(place) for place in range(len(view.scores))]
        return best(lots, quota(view, self.n, self.steps))


@cache
def falling_shares(steps: int, eps: float) -> Sequence[np.float32]:
    """The share of what is masked that each step but the last writes, in single precision as published."""
    levels = torch.linspace(1.0, eps, steps + 1, dtype=torch.float32)
    return list((1 - levels[1:] / levels[:-1])[:-1].numpy())


class Share:
    """As large a share of the masked positions as falling noise levels leave to a step."""

    def __init__(self, spec: ShareSpec) -> None:
        self.score = spec.score
        self.steps, self.eps, self.temperature = spec.steps, spec.eps, spec.temperature

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take the step's share of the best positions; the last step takes all."""
        shares = falling_shares(self.steps or view.size, self.eps)
        if view.step >= len(shares):
            return range(len(view.scores))
        count = math.floor(np.float32(len(view.scores)) * shares[view.step])
        return best(self._ranks(view), count) if count else ()

    def _ranks(self, view: RuleView) -> Sequence[float]:
        """Scores; with a temperature, scores with noise, whose best are a draw from the softmax of scores over it."""
        if not self.temperature:
            return view.scores
        lots = [max(view.lot(place), SMALLEST_LOT) for place in range(len(view.scores))]
        noise = [-math.log(-math.log(lot)) for lot in lots]
        return [score / self.temperature + each for score, each in zip(view.scores, noise, strict=True)]


class Origin:
    """Every masked position by lot, with the step's share as its probability."""

    score: ScoreName = "confidence"

    def __init__(self, spec: OriginSpec) -> None:
        self.steps, self.eps = spec.steps, spec.eps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take those whose lot falls; the last step takes all."""
        shares = falling_shares(self.steps or view.size, self.eps)
        places = range(len(view.scores))
        if view.step >= len(shares):
            return places
        return [place for place in places if view.lot(place) < shares[view.step]]


class Overdue:
    """No more positions than an even schedule allows so far, those that are not confident enough dropped."""

    score: ScoreName = "confidence"

    def __init__(self, spec: OverdueSpec) -> None:
        self.threshold = spec.threshold
        self.steps = spec.steps

    def choose(self, view: RuleView) -> Sequence[int]:
        """Take what is allowed so far and confident enough, and the best in any case."""
        share, rest = divmod(view.size, self.steps)
        passed = view.step + 1
        allowed = min(view.size, share * passed + min(rest, passed))
        written = view.size - len(view.scores)
        chosen = best(view.scores, max(1, allowed - written))
        confident = [place for place in chosen if view.scores[place] >= self.threshold]
        return confident or best(view.scores, 1)


class OwnRule:
    """A rule of one's own: what it answers is checked, and an error in it names its file and line."""

    def __init__(self, rule: Rule, name: str) -> None:
        self.rule = rule
        self.name = name
        self.score: ScoreName = getattr(rule, "score", "confidence")
        if self.score not in get_args(ScoreName):
            raise UnmaskError(
                f"The rule {self.name} reads the score {shown(self.score)}; there are {', '.join(get_args(ScoreName))}."
            )

    def choose(self, view: RuleView) -> Sequence[int]:
        """Ask it, and refuse what names no masked position, or one twice."""
        with guarded(self.name, RULE):
            chosen = self.rule.choose(view)
            try:
                indices = sorted(index(each) for each in chosen)
            except TypeError:
                raise UnmaskError(
                    f"The rule {self.name} answered {shown(chosen)}; choose(view) must return indices of view.scores."
                ) from None
        if (indices and not 0 <= indices[0] <= indices[-1] < len(view.scores)) or len({*indices}) < len(
            indices
        ):
            raise UnmaskError(
                f"The rule {self.name} chose {shown(indices)} of {len(view.scores)} positions; each index from 0 to "
                f"{len(view.scores) - 1} may be named once."
            )
        return indices


MAKERS: dict[type[RuleSpec], Callable[[Any], Rule]] = {
    ThresholdSpec: Threshold,
    TopNSpec: TopN,
    SequentialSpec: Sequential,
    EntropyBoundSpec: EntropyBound,
    FactorSpec: Factor,
    RandomSpec: Random,
    ShareSpec: Share,
    OriginSpec: Origin,
    OverdueSpec: Overdue,
    CustomRuleSpec: lambda spec: OwnRule(made_of(spec.target, spec.options, RULE), spec.target),
}


def make_rule(rule: Rule | AnyRuleSpec | Mapping[str, Any], family: Family = FAST_DLLM_V2) -> Rule:
    """The rule of a spec for models of a family; a rule of one's own passes through, its choices checked."""
    if isinstance(rule, RuleSpec | Mapping):
        spec = rule_spec(rule)
        if isinstance(spec, ThresholdSpec):
            return Threshold(spec, family.inclusive)
        return MAKERS[type(spec)](spec)
    if callable(getattr(rule, "choose", None)) and not isinstance(rule, type):
        return OwnRule(rule, type(rule).__name__)
    raise UnmaskError(
        f"{rule!r} is no unmasking rule; give a spec such as {{'kind': 'top_n', 'n': 2}}, or an object with a method "
        "choose(view)."
    )
