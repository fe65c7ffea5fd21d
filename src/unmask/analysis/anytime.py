"""Intervals of paired differences that hold at every look at once, so that a run may end when its fate is certain.

A bet against a mean m multiplies its stake by 1 - f + f y / m for a row of value y in 0 to 1. If the true mean is m or
less, no bet is expected to gain, so the stake ever grows to 1 / a with a probability of at most a (Ville 1939). The
means against which no stake has grown so far are a confidence sequence (Waudby-Smith and Ramdas, Estimating means of
bounded random variables by betting, J. R. Stat. Soc. B 86, 2024, 1-27). The bets here are a fixed mixture of fractions
f, so the interval depends on the rows, not on their order. An order that is stratified leaves it valid: for a constant
f the product over a round is at most exp(sum of f (y / m - 1)), and that sum is expected to be 0 where a round asks its
strata in proportion. Knows numbers only.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.analysis.statistics import LEVEL, Interval
from unmask.errors import UnmaskError

Floats = NDArray[np.float64]
FRACTIONS: Floats = np.geomspace(0.06, 0.9, 8)
"""Shares of the largest bet: the small ones find small differences in many rows, the large ones large ones in few."""
HALVINGS = 40
"""Of 0 to 1: the bounds are exact to twelve digits."""
METHOD = "anytime"


def anytime_bounds(values: ArrayLike, counts: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Bounds of a mean at each look; `counts` says how often each of `values` (-1 to 1) had occurred by then.

    All looks hold together at `level`, however many there are and whenever one stops to look.
    """
    kinds, seen = _checked(values, counts)
    hurdle = _hurdle(level)
    low = _lowest_mean((1 + kinds) / 2, seen, hurdle)
    high = _lowest_mean((1 - kinds) / 2, seen, hurdle)
    return 2 * low - 1, 1 - 2 * high


def sides(values: ArrayLike, counts: ArrayLike, bound: float, level: float = LEVEL) -> NDArray[np.int64]:
    """At each look: 1 where the mean is certainly above a bound (-1 to 1), -1 where it is certainly below, else 0."""
    kinds, seen = _checked(values, counts)
    hurdle, number = _hurdle(level), len(seen)
    if abs(bound) >= 1:
        return np.zeros(number, dtype=np.int64)
    above = _log_stake((1 + kinds) / 2, seen, np.full(number, (1 + bound) / 2)) >= hurdle
    below = _log_stake((1 - kinds) / 2, seen, np.full(number, (1 - bound) / 2)) >= hurdle
    return above.astype(np.int64) - below


def _checked(values: ArrayLike, counts: ArrayLike) -> tuple[Floats, Floats]:
    kinds, seen = np.asarray(values, dtype=float), np.asarray(counts, dtype=float)
    if not kinds.size or np.abs(kinds).max() > 1:
        raise UnmaskError("An anytime interval needs values from -1 to 1.")
    return kinds, seen


def _hurdle(level: float) -> float:
    """The logarithm that a stake must reach; either side of the interval may fail in half of the cases."""
    return float(-np.log((1 - level) / 2))


def _lowest_mean(values: Floats, counts: Floats, hurdle: float) -> Floats:
    """The lowest mean at each look against which the stake has not grown to the hurdle: stakes fall with the mean."""
    below, above = np.zeros(len(counts)), np.ones(len(counts))
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        ruled_out = _log_stake(values, counts, middle) >= hurdle
        below, above = np.where(ruled_out, middle, below), np.where(ruled_out, above, middle)
    return below


def _log_stake(values: Floats, counts: Floats, means: Floats) -> Floats:
    """Logarithm of the mixture's stake at each look, had it bet that the mean is above that of `means`."""
    total = np.full(len(counts), -np.inf)
    for fraction in FRACTIONS:
        gains = np.log1p(fraction * (values[None, :] / means[:, None] - 1))
        total = np.logaddexp(total, np.einsum("lv,lv->l", gains, counts))
    stake: Floats = total - np.log(len(FRACTIONS))
    return stake


def anytime_interval(changes: Sequence[float], every: int, level: float = LEVEL) -> Interval:
    """The interval after these changes (second minus first, as they were answered), looked at every so many rows.

    It also looks at the end. What an earlier look has ruled out stays so, because all looks hold together.
    """
    if not len(changes):
        return Interval(-1.0, 1.0, level, METHOD)
    kinds, which = np.unique(np.asarray(changes, dtype=float), return_inverse=True)
    each = np.zeros((len(changes), len(kinds)))
    each[np.arange(len(changes)), which] = 1
    lows, highs = anytime_bounds(kinds, np.cumsum(each, axis=0)[looks(len(changes), every) - 1], level)
    low, high = np.maximum.accumulate(lows), np.minimum.accumulate(highs)
    # A look that would leave nothing shows that one of them failed, which the level allows for; it is left out.
    last = int(np.count_nonzero(low <= high)) - 1
    return Interval(float(low[last]), float(high[last]), level, METHOD)


def looks(rows: int, every: int) -> NDArray[np.int64]:
    """How many rows there are at each look."""
    return np.unique([*range(every, rows, every), rows])
