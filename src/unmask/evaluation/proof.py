"""Proof of effect: what the forwards behind a result really did, and why a policy did nothing where it did.

Knows ledgers only. A result without its ledger cannot tell a knob that works from one that does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from unmask.cost import Ledger
from unmask.spec import FullSpec, LayerReuseSpec, PolicySpec

Path = Literal["generation", "scoring"]


@dataclass(slots=True)
class Tally:
    """The work of one task on one path."""

    layers: int
    requests: int = 0
    ledger: Ledger = field(init=False)
    reasons: list[str] = field(default_factory=list)
    """Why the policy could not act, as the engine said it."""

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.layers)

    def add(self, ledger: Ledger, requests: int = 1) -> None:
        """Count the work of some requests."""
        self.ledger.entries.update(ledger.entries)
        self.requests += requests


class Proof:
    """Work by task and path."""

    def __init__(self, layers: int, policy: PolicySpec | None) -> None:
        self.layers = layers
        self.policy = policy
        self.tallies: dict[tuple[str, Path], Tally] = {}

    def tally(self, task: str, path: Path) -> Tally:
        """The tally of one task on one path."""
        return self.tallies.setdefault((task, path), Tally(self.layers))

    def of(self, tasks: Iterable[str] | None = None) -> dict[str, Any]:
        """What these tasks (or all) did, by path."""
        wanted = None if tasks is None else set(tasks)
        found: dict[str, Any] = {}
        for path in ("generation", "scoring"):
            parts = [
                tally
                for (task, way), tally in self.tallies.items()
                if way == path and (wanted is None or task in wanted)
            ]
            if parts:
                found[path] = self._summary(parts)
        return found

    def _summary(self, parts: list[Tally]) -> dict[str, Any]:
        total = Tally(self.layers)
        for part in parts:
            total.add(part.ledger, part.requests)
        said = [reason for part in parts for reason in part.reasons]
        return {"requests": total.requests, **effect(total.ledger), "inactive": self._inactive(total, said)}

    def _inactive(self, total: Tally, said: list[str]) -> str | None:
        if self.policy is None or isinstance(self.policy, FullSpec):
            return None
        if total.ledger.reuse_fraction() > 0:
            return None
        if isinstance(self.policy, LayerReuseSpec) and self.policy.k == 1:
            return "k=1 never reuses: this is the baseline under another name"
        if said:
            return said[0]
        steps = total.ledger.steps()
        return (
            f"none of the {steps['block']} block and {steps['sub']} sub-block steps had an earlier step that the "
            "policy may reuse"
        )


def effect(ledger: Ledger) -> dict[str, Any]:
    """Forwards by kind, layer calls, calls and rows that were skipped, and the share of work not done."""
    forwards = ledger.steps()
    calls = ledger.layer_calls()
    full = ledger.in_full().branch_rows()
    done = ledger.branch_rows()
    return {
        "forwards": forwards,
        "rows": ledger.rows(),
        "layer_calls": calls,
        "layer_calls_replayed": sum(forwards.values()) * ledger.layers - sum(calls),
        "branch_rows": done,
        "branch_rows_skipped": full - done,
        "reuse_fraction": ledger.reuse_fraction(),
    }
