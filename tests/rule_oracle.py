"""Unmasking rules written plainly, on probabilities in float64, with the margin of every choice.

Shares no code with the package. A margin says how far scores are from another choice; it is 0 where the order of
equal scores decided.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

ENTROPY_SCALE = 0.1
"""Entropies are up to some nats, and are rounded accordingly."""


def choose(rule: Mapping[str, Any], step: int, size: int, shares_NV: Tensor) -> tuple[list[int], float]:
    """Places that a step makes known, best first, and the margin."""
    kind = rule["kind"]
    scores = scored(
        rule.get("score") or {"entropy_bound": "entropy", "share": "entropy"}.get(kind), shares_NV
    )
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    if kind == "sequential":
        return list(range(min(len(scores), paced(rule, step, size)))), math.inf
    if kind == "top_n":
        return cut(order, scores, paced(rule, step, size), math.inf, rule)
    if kind == "threshold":
        tau, due = rule["threshold"], paced(rule, step, size) if rule.get("steps") else 1
        above = [place for place in order if scores[place] > tau]
        gap = math.inf if tau == 1 else min(abs(score - tau) for score in scores)
        return (above, gap) if len(above) >= due else cut(order, scores, due, gap, rule)
    if kind == "entropy_bound":
        return bounded(order, scores, rule)
    if kind == "factor":
        return by_factor(order, scores, rule)
    if kind == "share":
        return shared_out(order, scores, step, rule)
    assert kind == "overdue"
    return overdue(order, scores, step, size, rule)


def scored(score: str | None, shares_NV: Tensor) -> list[float]:
    """The score of every position; higher is surer."""
    if score == "entropy":
        return list((shares_NV * (shares_NV + 1e-10).log()).sum(dim=-1).tolist())
    best = shares_NV.topk(2, dim=-1).values
    return list((best[:, 0] - best[:, 1] if score == "margin" else best[:, 0]).tolist())


def paced(rule: Mapping[str, Any], step: int, size: int) -> int:
    """Positions that are due at a step."""
    if rule.get("n"):
        return int(rule["n"])
    number = int(rule["steps"])
    return max(1, size // number + (1 if step < size % number else 0))


def cut(
    order: list[int], scores: Sequence[float], count: int, gap: float, rule: Mapping[str, Any]
) -> tuple[list[int], float]:
    """The first so many, and how far the last of them is from the first that is left out."""
    if 0 < count < len(order):
        between = scores[order[count - 1]] - scores[order[count]]
        gap = min(gap, between * (ENTROPY_SCALE if rule.get("score") == "entropy" else 1))
    return order[:count], gap


def bounded(order: list[int], scores: Sequence[float], rule: Mapping[str, Any]) -> tuple[list[int], float]:
    sums = [sum(-scores[place] for place in order[: count + 1]) for count in range(len(order))]
    count = max(1, sum(total < rule["bound"] for total in sums))
    gap = min(abs(total - rule["bound"]) for total in sums) * ENTROPY_SCALE
    return cut(order, scores, count, gap, {"score": "entropy"})


def by_factor(order: list[int], scores: Sequence[float], rule: Mapping[str, Any]) -> tuple[list[int], float]:
    asked = [1 - rule["factor"] / (rank + 2) for rank in range(len(order))]
    fails = [rank for rank in range(1, len(order)) if scores[order[rank]] < asked[rank]]
    passed = fails[0] if fails else len(order)
    gap = min(
        (abs(scores[order[rank]] - asked[rank]) for rank in range(1, min(passed + 1, len(order)))),
        default=math.inf,
    )
    return (order, gap) if passed >= len(order) - 1 else cut(order, scores, passed, gap, rule)


def shared_out(
    order: list[int], scores: Sequence[float], step: int, rule: Mapping[str, Any]
) -> tuple[list[int], float]:
    steps, eps = rule["steps"], rule.get("eps", 1e-3)
    if step >= steps - 1:
        return order, math.inf
    exact = len(order) * (1 - eps) / (steps - step * (1 - eps))
    gap = abs(exact - round(exact)) / 10
    return cut(order, scores, math.floor(exact), gap, {"score": rule.get("score", "entropy")})


def overdue(
    order: list[int], scores: Sequence[float], step: int, size: int, rule: Mapping[str, Any]
) -> tuple[list[int], float]:
    steps, tau = rule["steps"], rule["threshold"]
    allowed = sum(
        size // steps + (1 if number < size % steps else 0) for number in range(min(steps, step + 1))
    )
    taken, gap = cut(order, scores, max(1, allowed - (size - len(order))), math.inf, rule)
    gap = min([gap, *(abs(scores[place] - tau) for place in taken)])
    kept = [place for place in taken if scores[place] >= tau]
    return kept or taken[:1], gap
