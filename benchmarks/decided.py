"""How often sweeps that stop when they know are wrong, how soon they know, and what they cannot decide.

Simulates sweeps of one control and its candidates on the published rows and accuracies (GSM8K, 1,319 rows: 80.4, 73.7
and 67.5 % for three reuse intervals), and of candidates with other losses. Needs no model, and takes a minute.

    python benchmarks/decided.py --sweeps 2000

Three tables and one JSON document; exit code 1 if intervals hold the truth less often than they say, or a loss of 13
points against an allowed 5 takes more than 40 % of the rows in the median.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from unmask.analysis.anytime import looks, sides
from unmask.analysis.decisions import CHANGES, Decisions, simulate
from unmask.analysis.statistics import (
    AGREEMENT,
    LEVEL,
    bonferroni_level,
    independent_discordance,
    paired_bounds,
)

ROWS, EVERY, ALLOWED = 1319, 64, 0.05
CONTROL, CANDIDATES = 0.804, (0.737, 0.675)
MOST_ROWS = 0.4
Flags = NDArray[np.bool_]


def changed(loss: float, agreement: float = AGREEMENT) -> float:
    """Share of rows that change: half of what independent errors would change, and never less than the loss."""
    return max(abs(loss), agreement * independent_discordance(CONTROL, loss))


def sweeps_of(candidates: Sequence[float], sweeps: int, seed: int) -> list[NDArray[np.int64]]:
    """For each candidate: how often rows were lost, kept and gained at each look of each sweep, beside one control."""
    random, at = np.random.default_rng(seed), looks(ROWS, EVERY)
    right = random.random((sweeps, ROWS)) < CONTROL
    counts = []
    for accuracy in candidates:
        loss = CONTROL - accuracy
        lost, gained = (changed(loss) + loss) / 2, (changed(loss) - loss) / 2
        draw = random.random((sweeps, ROWS))
        change = np.where(right, -(draw < lost / CONTROL).astype(int), draw < gained / (1 - CONTROL))
        each = [np.cumsum(change == value, axis=1)[:, at - 1] for value in (-1, 0, 1)]
        counts.append(np.stack(each, axis=-1))
    return counts


def whole_sweeps(sweeps: int, seed: int) -> dict[str, float]:
    """Of sweeps with all candidates: how often every interval holds at every look, anytime and ordinary ones."""
    level = bonferroni_level(LEVEL, len(CANDIDATES))
    anytime: Flags = np.ones(sweeps, dtype=bool)
    ordinary: Flags = np.ones(sweeps, dtype=bool)
    for accuracy, counts in zip(CANDIDATES, sweeps_of(CANDIDATES, sweeps, seed), strict=True):
        flat, truth = counts.reshape(-1, 3), accuracy - CONTROL
        anytime &= ~(sides(CHANGES, flat, truth, level).reshape(sweeps, -1) != 0).any(axis=1)
        for number, rows in enumerate(looks(ROWS, EVERY)):
            low, high = paired_bounds(counts[:, number, 2], counts[:, number, 0], int(rows), level)
            ordinary &= (low <= truth) & (truth <= high)
    return {"anytime": float(anytime.mean()), "ordinary": float(ordinary.mean())}


def in_strata(sweeps: int, seed: int, strata: int = 57) -> float:
    """How often the interval holds at every look where subtasks lose from nothing to 30 points, asked in proportion."""
    random, at = np.random.default_rng(seed), looks(strata * 24, strata)
    losses = np.linspace(0.0, 0.3, strata)
    draw = random.random((sweeps, 24, strata))
    change = np.where(draw < losses + 0.05, -1, np.where(draw > 0.95, 1, 0)).reshape(sweeps, -1)
    counts = np.stack([np.cumsum(change == value, axis=1)[:, at - 1] for value in (-1, 0, 1)], axis=-1)
    side = sides(CHANGES, counts.reshape(-1, 3), -float(losses.mean()), LEVEL).reshape(sweeps, -1)
    return float((side == 0).all(axis=1).mean())


def line(name: str, found: Decisions) -> str:
    """A row of a table in Markdown."""
    cells = (
        f"{100 * found.decided:.0f} %",
        f"{found.rows:,.0f} ({100 * found.rows / ROWS:.0f} %)",
        f"{100 * found.wrong:.1f} %",
        f"{100 * found.covered:.1f} %",
    )
    return f"| {name} | {' | '.join(cells)} |"


def show(heading: str, cases: Sequence[tuple[str, Decisions]]) -> None:
    """Print a table in Markdown."""
    print(
        f"\n| {heading} | decided | rows, median | decided wrongly | interval holds |\n|---|---|---|---|---|"
    )
    for name, found in cases:
        print(line(name, found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    sweeps, seed = chosen.sweeps, chosen.seed

    def pairs(loss: float, share: float, comparisons: int) -> Decisions:
        level = bonferroni_level(LEVEL, comparisons)
        return simulate(ROWS, EVERY, loss, share, (ALLOWED,), level, sweeps, seed)

    grid = [
        (f"{100 * (CONTROL - accuracy):.1f}, {n} comparisons", pairs(CONTROL - accuracy, share, n))
        for accuracy in CANDIDATES
        for n in (2, 8)
        for share in (changed(CONTROL - accuracy),)
    ]
    show("published loss (points)", grid)
    losses = (0.0, 0.02, 0.03, 0.05, 0.07, 0.08, 0.1, 0.13)
    others = [(f"{100 * loss:.0f}", pairs(loss, changed(loss), 2)) for loss in losses]
    show("true loss (points), 2 comparisons", others)
    agreeing = [
        (f"{100 * loss:.0f}, {100 * share:.0f} % of the rows", pairs(loss, share, 2))
        for loss, share in ((0.0, 0.02), (0.0, 0.05), (0.0, 0.1), (0.13, 0.2), (0.13, 0.39))
    ]
    show("true loss (points) and rows that change", agreeing)
    together, strata = whole_sweeps(sweeps, seed), in_strata(sweeps, seed)
    print(
        f"\nOf {sweeps:,} sweeps of the published grid, all intervals hold at all looks in "
        f"{100 * together['anytime']:.1f} %; ordinary ones, looked at as often, in {100 * together['ordinary']:.1f} %."
        f"\nWith 57 subtasks that lose differently: {100 * strata:.1f} %."
    )
    tables = {"grid": grid, "losses": others, "agreeing": agreeing}
    report = {key: {name: asdict(found) for name, found in cases} for key, cases in tables.items()}
    print(json.dumps({"sweeps": sweeps, "together": together, "strata": strata, **report}))
    hold = min(together["anytime"], strata, *(found.covered for _, found in (*grid, *others, *agreeing)))
    soon = all(found.rows <= MOST_ROWS * ROWS for name, found in grid if name.startswith("12.9"))
    return 0 if hold >= LEVEL and soon else 1


if __name__ == "__main__":
    raise SystemExit(main())
