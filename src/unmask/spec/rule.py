"""Unmasking rules as data: a tagged union, one struct a rule. What each chooses is in `unmask.engine.rules`.

A new rule is one struct here, named in the union at the end; one class in `unmask.engine.rules` with its line of
`MAKERS`; and one heading in docs/decoder.md.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.build import build, shown, within
from unmask.spec.own_code import RULE, TARGET, own_code

ScoreName = Literal["confidence", "margin", "entropy"]
"""What predictions are ranked by: the probability of the token, its lead over the second, how sharp all of them are."""
MOST_STEPS = 10_000


class RuleSpec(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    omit_defaults=False,
):
    """What all rule specs share: they are frozen, refuse unknown fields and are told apart by `kind`."""

    later: ClassVar[tuple[str, ...]] = ()
    """Settings that came after version 0.2: at their default they stay out of identities, so that ids stay."""

    def depends_on(self) -> dict[str, str]:
        """What a result depends on besides these fields: code, by its hash or version."""
        return {}

    def writes(self, size: int, opened: bool = False) -> tuple[int, ...]:  # noqa: ARG002 (predictions decide)
        """How many positions each step of an unknown sub-block makes known; empty where predictions decide it.

        Where it was `opened`, a step before these made the first position known. Idle steps are left out.
        """
        return ()


class ThresholdSpec(RuleSpec, frozen=True, kw_only=True, tag="threshold"):
    """Everything above a confidence, and the most confident positions up to a quota in any case."""

    threshold: float = 0.9
    """A position is written when its confidence is strictly greater; 1 writes the quota only."""
    steps: int | None = None
    """Steps in which a sub-block is written at the latest: the quota is its share; None: one position."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        check_threshold(self.threshold)
        within("steps", self.steps, 1, MOST_STEPS)


class _Paced(RuleSpec, frozen=True, kw_only=True):
    """A rule that writes a given number of positions a step."""

    n: int | None = None
    """Positions a step."""
    steps: int | None = None
    """Or the steps of a sub-block: each writes an equal share, the first ones one more where it does not divide."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing, or two things."""
        if (self.n is None) == (self.steps is None):
            raise UnmaskError("Give either n (positions a step) or steps (steps of a sub-block).")
        within("n", self.n, 1, MOST_STEPS)
        within("steps", self.steps, 1, MOST_STEPS)

    def writes(self, size: int, opened: bool = False) -> tuple[int, ...]:
        """So many, or equal shares."""
        share, rest = divmod(size, self.steps or size)
        counts: list[int] = []
        while (left := size - opened - sum(counts)) > 0:
            step = len(counts) + opened
            counts.append(min(left, self.n or max(1, share + (step < rest))))
        return tuple(counts)


class TopNSpec(_Paced, frozen=True, kw_only=True, tag="top_n"):
    """The best positions by a score, as many at every step."""

    score: ScoreName = "confidence"
    """What positions are ranked by."""


class SequentialSpec(_Paced, frozen=True, kw_only=True, tag="sequential"):
    """The leftmost positions, as many at every step."""


class EntropyBoundSpec(RuleSpec, frozen=True, kw_only=True, tag="entropy_bound"):
    """The most certain positions while the sum of their entropies stays below a bound, and at least one."""

    bound: float = 0.35
    """In nats."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        within("bound", self.bound, 0, 1_000_000)


class FactorSpec(RuleSpec, frozen=True, kw_only=True, tag="factor"):
    """The most confident positions while the one at rank r (from 0) has at least 1 - factor / (r + 2).

    The first is written in any case, and all are if all but one pass.
    """

    factor: float = 1.0
    """Larger values write more positions a step."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        within("factor", self.factor, 0, 1_000_000)


class RandomSpec(_Paced, frozen=True, kw_only=True, tag="random"):
    """Positions drawn by lot, as many at every step."""


class _Falling(RuleSpec, frozen=True, kw_only=True):
    """A rule that writes the share which falling noise levels leave to a step."""

    steps: int | None = None
    """Steps of a sub-block; the last one writes all that is left. None: as many as the sub-block has positions."""
    eps: float = 1e-3
    """The noise level after the last step; it falls to it evenly from 1."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        within("steps", self.steps, 1, MOST_STEPS)
        if not 0 < self.eps < 1:
            raise UnmaskError(f"eps is {shown(self.eps)}; it must lie between 0 and 1.")


class ShareSpec(_Falling, frozen=True, kw_only=True, tag="share"):
    """Dream's schedule: of what is masked, each step writes the step's share, the best positions by a score."""

    later: ClassVar[tuple[str, ...]] = ("temperature",)
    score: ScoreName = "entropy"
    """What positions are ranked by."""
    temperature: float = 0.0
    """Above 0 positions are drawn by lot, the better ones likelier (published as `alg_temp`)."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        super().__post_init__()
        within("temperature", self.temperature, 0, 1_000_000)

    def writes(self, size: int, opened: bool = False) -> tuple[int, ...]:
        """The step's share, rounded down, of what is left."""
        steps, counts = self.steps or size, list[int]()
        for step in range(opened, max(steps, opened + 1)):
            left, fall = size - opened - sum(counts), (1 - self.eps) / steps
            counts.append(left if step >= steps - 1 else math.floor(left * fall / (1 - fall * step)))
        return tuple(filter(None, counts))


class OriginSpec(_Falling, frozen=True, kw_only=True, tag="origin"):
    """Dream's first rule: each masked position is written by lot, with the step's share as its probability."""


class OverdueSpec(RuleSpec, frozen=True, kw_only=True, tag="overdue"):
    """Dream's threshold: no more than an even schedule allows so far, and of these only confident positions."""

    steps: int
    """Steps of a sub-block by the schedule; where positions were dropped, more follow."""
    threshold: float = 0.9
    """A position is dropped when its confidence is smaller, unless it is the most confident one."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        within("steps", self.steps, 1, MOST_STEPS)
        check_threshold(self.threshold)


class CustomRuleSpec(RuleSpec, frozen=True, kw_only=True, tag="custom"):
    """A rule of your own: `target` is `package.module:Class` or the name of an installed entry point."""

    target: str
    """Where the class is."""
    options: dict[str, Any] = {}
    """Keyword arguments of the class."""

    def __post_init__(self) -> None:
        """Refuse what can be no place of a class."""
        if not TARGET.fullmatch(self.target):
            raise UnmaskError(f"target is {shown(self.target)}; write package.module:Class.")

    def __hash__(self) -> int:
        """Options are a mapping, which has no hash of its own."""
        return hash(msgspec.json.encode(self, order="deterministic"))

    def depends_on(self) -> dict[str, str]:
        """An edit of the code gives other choices, so another result."""
        return {"rule_code": own_code(self.target, RULE)}


AnyRuleSpec = (
    ThresholdSpec
    | TopNSpec
    | SequentialSpec
    | EntropyBoundSpec
    | FactorSpec
    | RandomSpec
    | ShareSpec
    | OriginSpec
    | OverdueSpec
    | CustomRuleSpec
)


def rule_spec(values: AnyRuleSpec | Mapping[str, Any]) -> AnyRuleSpec:
    """Validate a mapping such as {"kind": "top_n", "n": 2}; a spec passes through."""
    if isinstance(values, RuleSpec):
        return values
    return build(AnyRuleSpec, dict(values), "Rule")  # type: ignore[arg-type]


def check_threshold(threshold: float) -> None:
    """Refuse a threshold that no confidence can be compared with."""
    if not 0 < threshold <= 1:
        raise UnmaskError(f"threshold is {threshold}; it must lie in (0, 1].")
