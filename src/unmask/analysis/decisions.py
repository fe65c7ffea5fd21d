"""How likely a sweep that stops when it knows will know, and after how many rows: simulated.

Rows are drawn independently: a row is lost, gained or the same. Used before a sweep by `unmask plan`, and by
`benchmarks/decided.py`, which checks that what is called certain is true as often as it says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.analysis.anytime import looks, sides
from unmask.errors import UnmaskError

SWEEPS = 400
"""Simulated for a plan: a probability is then known to about five points."""
CHANGES = (-1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What became of simulated pairs of a control and a candidate."""

    decided: float
    """Share whose loss was certainly on one side of every bound before or at the last row."""
    rows: float
    """Median of the rows asked, of those that were never decided too."""
    early: float
    """Share that was decided before the last row."""
    wrong: float
    """Share that was decided for a side on which the true loss is not."""
    covered: float
    """Share whose interval held the true loss at every look, and so also when it stopped."""


def simulate(
    rows: int,
    every: int,
    loss: float,
    changed: float,
    bounds: Sequence[float],
    level: float,
    sweeps: int = SWEEPS,
    seed: int = 0,
) -> Decisions:
    """Pairs that truly lose `loss` and change a share of the rows, looked at every so many rows."""
    if not abs(loss) <= changed <= 1:
        raise UnmaskError(f"A loss of {loss:g} is not possible where {changed:g} of the rows change.")
    shares = [(changed + loss) / 2, 1 - changed, (changed - loss) / 2]
    at = looks(rows, every)
    drawn = np.random.default_rng(seed).multinomial(np.diff(at, prepend=0), shares, (sweeps, len(at)))
    counts = np.cumsum(drawn, axis=1).reshape(-1, len(CHANGES))

    by_bound = [
        _first_known(-sides(CHANGES, counts, -bound, level).reshape(sweeps, len(at))) for bound in bounds
    ]
    known = np.all([side != 0 for side in by_bound], axis=0)
    decided, when = known.any(axis=1), np.where(known.any(axis=1), np.argmax(known, axis=1), -1)
    stopped = at[when]
    wrong = np.zeros(sweeps, dtype=bool)
    for bound, side in zip(bounds, by_bound, strict=True):
        wrong |= decided & (side[np.arange(sweeps), when] != np.sign(loss - bound))
    covered = ~(sides(CHANGES, counts, -loss, level).reshape(sweeps, len(at)) != 0).any(axis=1)
    return Decisions(
        decided=float(decided.mean()),
        rows=float(np.median(stopped)),
        early=float((decided & (stopped < rows)).mean()),
        wrong=float(wrong.mean()),
        covered=float(covered.mean()),
    )


def _first_known(known: NDArray[np.int64]) -> NDArray[np.int64]:
    """At each look of each sweep: the side that is known by then; the first that was known stays."""
    first = known[np.arange(len(known)), np.argmax(known != 0, axis=1)]
    return np.where(np.maximum.accumulate(known != 0, axis=1), first[:, None], 0)
