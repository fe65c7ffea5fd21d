"""The tables of docs/findings.md, read from a store that holds the results of recipes 01 to 04.

    for name in 01_residual 02_trim 03_adaptive 04_threshold; do unmask run recipes/$name --slots 2; done
    python benchmarks/findings.py --store results --write docs/findings.md

Nothing is decoded here. Work is counted FLOPs as a multiple of the baseline's on the same rows. At equal work a policy
is compared with the threshold curve: of the two thresholds whose work encloses the policy's, one answers a share of
the questions and the other one the rest, such that their work together is the policy's. The expected accuracy of this
mixture lies on a straight line between the two. The difference to it is paired by row (Student's interval; the share is
taken as known). A table stands in the page between `<!-- table: NAME -->` and `<!-- end -->`; all are printed as well.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pages import markdown, put_into_page
from unmask.analysis.frontier import Point, above_mixture, mixture_at
from unmask.analysis.likeness import flops
from unmask.analysis.samples import outcomes
from unmask.analysis.statistics import Interval, paired_difference, wilson
from unmask.analysis.stored import experiment_table
from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, TaskResults
from unmask.store import Store

TASK = "unmask_arith"
CURVE = "04_threshold"
SUBSETS = ("first", "middle", "last")
Table = list[str]
"""Lines of Markdown."""


@dataclass(frozen=True)
class Line:
    """One configuration, its rows and its counted work."""

    entry: ConfigurationResult

    @property
    def name(self) -> str:
        """Of the configuration."""
        return self.entry.configuration

    @property
    def policy(self) -> dict[str, Any]:
        """With all fields."""
        return dict(self.entry.policy)

    @cached_property
    def rows(self) -> dict[str, float]:
        """1 for a right answer and 0 for a wrong one."""
        values = outcomes(self.entry)
        if not values:
            raise SystemExit(f"{self.name} has no rows on disk; run its recipe again.")
        return values

    @cached_property
    def flops(self) -> float:
        """Counted operations of all rows."""
        return flops(self.entry) or 0.0

    @property
    def forwards(self) -> dict[str, int]:
        """By kind."""
        return dict(self.entry.effect["generation"].forwards)


@dataclass(frozen=True)
class Findings:
    """The configurations of the four recipes on the same rows."""

    recipes: dict[str, dict[str, Line]]

    @classmethod
    def read(cls, store: Store, names: Sequence[str]) -> "Findings":
        """Every result of these experiments on the task."""
        return cls(
            {
                name: {
                    entry.configuration: Line(entry)
                    for entry in experiment_table(store, name).entries
                    if entry.task == TASK
                }
                for name in names
            }
        )

    @property
    def baseline(self) -> Line:
        """The control."""
        return self.recipes[CURVE]["t0.9_s8"]

    @cached_property
    def curve(self) -> list[Line]:
        """Plain decoding at all thresholds and the usual sub-block, the cheapest first."""
        usual = self.baseline.entry.decode["sub_block_size"]
        return [line for line in self.plain if line.entry.decode["sub_block_size"] == usual]

    @property
    def plain(self) -> list[Line]:
        """Every decoding without a policy, the cheapest first."""
        plain = [line for line in self.recipes[CURVE].values() if line.policy["kind"] == "full"]
        return sorted(plain, key=lambda line: line.flops)

    def work(self, line: Line) -> float:
        """As a multiple of the baseline's."""
        return line.flops / self.baseline.flops

    def loss(self, line: Line) -> tuple[float, Interval, int, int]:
        """Points against the baseline, their interval, and problems lost and won."""
        return loss_between(self.baseline, line)

    def against_curve(self, line: Line) -> tuple[float, float, Interval] | None:
        """What thresholds of the same work are expected to get right, and the difference to it with its interval.

        None where no two thresholds enclose the work.
        """
        mixture = mixture_at(1 / self.work(line), [self._point(each) for each in self.curve])
        if mixture is None:
            return None
        entries = [each.entry for each in (*self.curve, line)]
        group = TaskResults(AnalysedExperiment(name=CURVE), TASK, None, tuple(entries))
        above = above_mixture(mixture, group, line.name)
        if above is None:
            raise SystemExit(f"{line.name} and the thresholds have other rows; run the recipes whole.")
        return mixture.accuracy, *above

    def _point(self, line: Line) -> Point:
        gain, threshold = 1 / self.work(line), line.entry.decode["threshold"]
        return Point(line.name, line.entry.value, gain, "work", False, threshold, None, None, None)


def loss_between(before: Line, after: Line) -> tuple[float, Interval, int, int]:
    """What is lost from one configuration to another, paired by row: share, interval, problems lost and won."""
    if after.rows.keys() != before.rows.keys():
        raise SystemExit(f"{after.name} and {before.name} have other rows; run the recipes whole.")
    pairs = [(before.rows[row], after.rows[row]) for row in before.rows]
    pair = paired_difference(*map(list, zip(*pairs, strict=True)))
    lost, won = sum(b > a for b, a in pairs), sum(a > b for b, a in pairs)
    return -pair.value, Interval(-pair.interval.high, -pair.interval.low, 0.95, ""), lost, won


def points(value: float) -> str:
    """A share in points, without a negative zero."""
    return f"{round(100 * value, 1) + 0.0:.1f}"


def span(interval: Interval) -> str:
    return f"[{points(interval.low)}, {points(interval.high)}]"


def accuracy(line: Line) -> str:
    right, count = sum(line.rows.values()), len(line.rows)
    return f"{points(right / count)} {span(wilson(right, count))}"


HEADINGS = ("right, %", "loss, points", "lost, won", "work", "at equal work, %", "better by, points")


def cells(found: Findings, line: Line) -> list[str]:
    """A configuration's figures under HEADINGS."""
    mixture = found.against_curve(line)
    expected, better = ("", "") if mixture is None else (points(mixture[0]), _better(mixture))
    return [
        accuracy(line),
        *loss_cells(found, line),
        f"{found.work(line):.3f}",
        expected,
        better,
    ]


def loss_cells(found: Findings, line: Line) -> tuple[str, str]:
    """The loss with its interval, and problems lost and won."""
    value, interval, lost, won = found.loss(line)
    return f"{points(value)} {span(interval)}", f"-{lost} +{won}"


def _better(mixture: tuple[float, float, Interval]) -> str:
    return f"{points(mixture[1])} {span(mixture[2])}"


def plain_table(found: Findings, lines: Iterable[Line], setting: str) -> Table:
    """Decoding without a policy, under different values of one setting."""

    def row(line: Line) -> list[str]:
        steps = line.forwards
        forwards = sum(number for kind, number in steps.items() if kind != "prefill")
        return [
            f"{line.entry.decode[setting]:g}",
            accuracy(line),
            *(("", "") if line is found.baseline else loss_cells(found, line)),
            f"{(line.entry.tokens or 0) / forwards:.2f}",
            f"{100 * steps['sub'] / (steps['sub'] + steps['block']):.0f}",
            f"{found.work(line):.3f}",
        ]

    named = setting.replace("_", "-", 1).replace("_", " ")
    headings = (named, "right, %", "loss, points", "lost, won", "tokens a forward", "sub, %", "work")
    return markdown(headings, map(row, lines))


def thresholds(found: Findings) -> Table:
    """The curve that every policy has to beat."""
    return plain_table(found, found.curve, "threshold")


def sub_blocks(found: Findings) -> Table:
    """Other sizes of a sub-block at the usual threshold."""
    usual = found.baseline.entry.decode["threshold"]
    lines = [line for line in found.plain if line.entry.decode["threshold"] == usual]
    return plain_table(
        found, sorted(lines, key=lambda line: line.entry.decode["sub_block_size"]), "sub_block_size"
    )


def settings(line: Line) -> tuple[str, int, str]:
    """Unit, k and scope."""
    policy = line.policy
    scope = "sub + block" if "block" in policy["on"] else "sub"
    return str(policy["unit"]), int(policy["k"]), scope


def units(found: Findings) -> Iterator[tuple[tuple[str, int, str], dict[str, Line]]]:
    """Layer reuse by unit, k and scope, and within these by subset."""
    grid: dict[tuple[str, int, str], dict[str, Line]] = {}
    for line in found.recipes["01_residual"].values():
        if line.policy["kind"] == "layer_reuse" and line.policy["k"] > 1:
            grid.setdefault(settings(line), {})[str(line.policy["layers"])] = line
    order = ("output", "residual", "attention", "mlp")
    return iter(sorted(grid.items(), key=lambda item: (order.index(item[0][0]), item[0][2], item[0][1])))


def by_subset(found: Findings, cell: Callable[[Line], str]) -> Table:
    rows = []
    for (unit, k, scope), lines in units(found):
        any_layers = unit == "output"
        values = [cell(lines["middle"] if any_layers else lines[subset]) for subset in SUBSETS]
        rows.append([unit, str(k), scope, *(["the same", values[1], "the same"] if any_layers else values)])
    return markdown(("unit", "k", "scope", *SUBSETS), rows)


def losses(found: Findings) -> Table:
    """Loss and work of every unit, subset, k and scope."""

    def cell(line: Line) -> str:
        return f"{loss_cells(found, line)[0]} at {found.work(line):.2f}"

    return by_subset(found, cell)


def equal_work(found: Findings) -> Table:
    """The same against the threshold curve."""

    def cell(line: Line) -> str:
        mixture = found.against_curve(line)
        return "outside of the curve" if mixture is None else _better(mixture)

    return by_subset(found, cell)


def policy_table(recipe: str) -> Callable[[Findings], Table]:
    """A line for each configuration of a recipe that acts."""

    def rows(found: Findings) -> Table:
        lines = [line for line in found.recipes[recipe].values() if line.policy["kind"] != "full"]
        return markdown(("configuration", *HEADINGS), ([line.name, *cells(found, line)] for line in lines))

    return rows


TABLES: dict[str, Callable[[Findings], Table]] = {
    "thresholds": thresholds,
    "sub-blocks": sub_blocks,
    "losses": losses,
    "equal work": equal_work,
    "trim": policy_table("02_trim"),
    "adaptive": policy_table("03_adaptive"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    options = parser.parse_args(arguments)
    found = Findings.read(Store(options.store), ("01_residual", "02_trim", "03_adaptive", CURVE))
    for name, make in TABLES.items():
        lines = make(found)
        print(f"{name}\n\n" + "\n".join(lines) + "\n")
        if options.write:
            put_into_page(options.write, name, lines)


if __name__ == "__main__":
    main()
