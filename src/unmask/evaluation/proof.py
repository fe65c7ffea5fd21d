"""Proof of effect: what the forwards behind a result did, what was shared, and why a policy did nothing where it did.

Knows counted work only. A result without it cannot tell a knob that works from one that does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce

import msgspec

from unmask.cost import ModelShape, Sharing, Work, price_of
from unmask.cost.work_sums import FP32, WorkSums
from unmask.engine.policy import NO_STEPS
from unmask.spec import PolicySpec
from unmask.store.result import Effect, PathName, SharedWork

PATHS: tuple[PathName, ...] = ("generation", "scoring")
NOTHING = SharedWork()


@dataclass(slots=True)
class Tally:
    """The work of one task on one path."""

    effect: WorkSums
    shared: SharedWork = NOTHING
    reasons: list[str] = field(default_factory=list)
    """Why the policy could not act, as the engine said it."""


class Proof:
    """Work by task and path."""

    def __init__(self, layers: int, policy: PolicySpec | None, estimator: str | None = None) -> None:
        self.layers = layers
        self.policy = policy
        self.estimator = estimator
        self.tallies: dict[tuple[str, PathName], Tally] = {}

    def add(
        self,
        task: str,
        path: PathName,
        effect: WorkSums,
        shared: SharedWork = NOTHING,
        inactive: str | None = None,
    ) -> None:
        """Count the work of some requests of a task, and what they were spared."""
        tally = self.tallies.setdefault((task, path), Tally(WorkSums(self.layers)))
        tally.effect.add(effect)
        tally.shared = tally.shared.plus(shared)
        if inactive:
            tally.reasons.append(inactive)

    def of(self, tasks: Iterable[str] | None = None) -> dict[str, Effect]:
        """What these tasks (or all) did, by path."""
        return {path: self._summary(parts, path) for path, parts in self._by_path(tasks).items()}

    def shared(self, tasks: Iterable[str] | None = None) -> dict[str, SharedWork]:
        """What the requests of these tasks (or of all) spared each other, by path."""
        return {
            path: reduce(SharedWork.plus, (part.shared for part in parts))
            for path, parts in self._by_path(tasks).items()
        }

    def _by_path(self, tasks: Iterable[str] | None) -> dict[PathName, list[Tally]]:
        wanted = None if tasks is None else set(tasks)
        found: dict[PathName, list[Tally]] = {}
        for path in PATHS:
            for (task, way), tally in self.tallies.items():
                if way == path and (wanted is None or task in wanted):
                    found.setdefault(path, []).append(tally)
        return found

    def _summary(self, parts: list[Tally], path: PathName) -> Effect:
        total = WorkSums(self.layers)
        for part in parts:
            total.add(part.effect)
        said = [reason for part in parts for reason in part.reasons]
        remark = self._remark(path) if total.reuse_fraction else None
        judged = {"inactive": self._inactive(total, said), "remark": remark}
        return msgspec.convert({**total.as_dict(), **judged}, Effect)

    def _remark(self, path: str) -> str | None:
        """Why configurations that look different may agree to the last digit."""
        estimator = self.estimator if path == "scoring" else None
        return "; ".join(self.policy.remarks(estimator)) or None if self.policy else None

    def _inactive(self, total: WorkSums, said: list[str]) -> str | None:
        if self.policy is None or self.policy.is_baseline:
            return None
        if total.reuse_fraction > 0:
            return None
        if self.policy.dead:
            return f"{self.policy.dead}: this is the baseline under another name"
        if said:
            return said[0]
        block, sub, tail = (total.kinds[kind].forwards for kind in ("block", "sub", "tail"))
        if not block + sub + tail:
            return NO_STEPS
        steps = f"{block} block, {tail} tail" if tail else f"{block} block"
        return f"none of the {steps} and {sub} sub-block steps had an earlier step that the policy may reuse"


def shared_work(sharing: Sharing, shape: ModelShape) -> SharedWork:
    """What some requests were spared, with its price."""
    taken = Work("prefill", sharing.positions, sharing.pairs, 0)
    flops = price_of(taken, shape, FP32).flops if sharing.positions else 0
    return SharedWork(positions=sharing.positions, flops=flops, forwards=sharing.forwards)
