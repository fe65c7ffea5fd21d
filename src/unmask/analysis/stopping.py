"""What is known of a sweep that stops when it knows: its rows so far, losses at any time, and which runs may end.

Workers ask after each round, `unmask run` before it starts anything, tables and verdicts afterwards: all get the same
answer from the same files. Loss and gain of two runs are those of the rows that both have answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from unmask.analysis.anytime import anytime_interval
from unmask.analysis.statistics import LEVEL, Interval, bonferroni_level
from unmask.analysis.words import bound_points, counted, in_percent
from unmask.cost.work_sums import WorkSums
from unmask.errors import UnmaskError
from unmask.spec.conduct import answer_order
from unmask.spec.recipe import Gained
from unmask.store import Store
from unmask.store.experiments import Experiment, Member
from unmask.store.run_folder import RunFolder, Terms
from unmask.store.stopping import AnsweredRow, Stopped, rows_of, stopped

EVERYONE = "every candidate is decided"
Rows = Mapping[str, AnsweredRow]


@dataclass(frozen=True, slots=True)
class LossSoFar:
    """The control's accuracy minus a run's, by the rows that both have answered."""

    value: float
    interval: Interval
    """Holds at every look."""
    rows: int
    discordant: float

    def is_decided(self, bounds: Sequence[float]) -> bool:
        """Whether the loss certainly lies on one side of every bound."""
        return all(self.interval.low > bound or self.interval.high < bound for bound in bounds)

    def sentence(self, bounds: Sequence[float]) -> str:
        """On which side of the bounds it lies, and by which rows."""
        above = [bound for bound in bounds if self.interval.low > bound]
        below = [bound for bound in bounds if self.interval.high < bound]
        sides = [f"more than {bound_points(max(above))}"] if above else []
        sides += [f"less than {bound_points(min(below))}"] if below else []
        return (
            f"its loss is certainly {' and '.join(sides)} ({in_percent(self.interval.low)} to "
            f"{in_percent(self.interval.high)} by {counted(self.rows, 'row')})"
        )


def loss_so_far(before: Rows, after: Rows, order: Sequence[str], terms: Terms) -> LossSoFar | None:
    """The loss by the beginning of the order that both have come to; None without such rows."""
    common = _common(before, after, order)
    if not common:
        return None
    changes = [after[row].value - before[row].value for row in common]
    interval = anytime_interval(changes, terms.rows, bonferroni_level(LEVEL, terms.comparisons))
    return LossSoFar(
        value=-fmean(changes),
        interval=Interval(-interval.high, -interval.low, interval.level, interval.method),
        rows=len(changes),
        discordant=fmean(change != 0 for change in changes),
    )


def _common(before: Rows, after: Rows, order: Sequence[str]) -> list[str]:
    for place, row in enumerate(order):
        if row not in before or row not in after:
            return list(order[:place])
    return list(order)


def fate_of(run: RunFolder) -> str | None:
    """Why a worker may end its run now, by the terms in its settings; None where it must go on."""
    terms = run.worker.until_decided
    return fate(run, terms) if isinstance(terms, Terms) else None


def fate(run: RunFolder, terms: Terms) -> str | None:
    """Why a run may end now, in one sentence without its end; None where it must go on."""
    try:
        order = answer_order(run.identity["task"], terms.seed)
        control = rows_of(RunFolder(run.folder.parent / terms.control))
        if run.name != terms.control:
            return _decision(control, rows_of(run), order, terms)
        others = (rows_of(RunFolder(run.folder.parent / name)) for name in terms.candidates)
        known = bool(terms.candidates) and all(_decision(control, rows, order, terms) for rows in others)
        return EVERYONE if known else None
    except UnmaskError:
        # A neighbour whose files are damaged decides nothing; guards and tables say what is wrong with it.
        return None


def _decision(control: Rows, candidate: Rows, order: Sequence[str], terms: Terms) -> str | None:
    loss = loss_so_far(control, candidate, order, terms)
    return loss.sentence(terms.bounds) if loss is not None and loss.is_decided(terms.bounds) else None


@dataclass(frozen=True)
class StoppingSweep:
    """The runs of one task whose sweep stops when it knows."""

    task: str
    limit: int | None
    terms: Terms
    control: str
    runs: Mapping[str, RunFolder]
    """By configuration: every run of the task, the control's too."""

    @cached_property
    def order(self) -> list[str]:
        """The rows in the order in which they are answered."""
        return answer_order(self.runs[self.control].identity["task"], self.terms.seed)

    @cached_property
    def rows(self) -> dict[str, dict[str, AnsweredRow]]:
        """The scored rows of each configuration; none of one whose files are damaged."""
        return {name: _readable_rows(run) for name, run in self.runs.items()}

    @cached_property
    def stopped(self) -> dict[str, Stopped]:
        """Configurations whose runs ended before their last row."""
        ends = {
            name: stopped(run.attempts()[-1])
            for name, run in self.runs.items()
            if run.attempts() and not (run.folder / "result.json").exists()
        }
        return {name: end for name, end in ends.items() if end is not None}

    def has_stopped(self, member: Member) -> bool:
        """Whether a run of the experiment ended before its last row."""
        run = self.runs.get(member.configuration)
        return run is not None and run.name == member.folder and member.configuration in self.stopped

    def accuracy(self, name: str) -> float | None:
        """Of the rows that were answered."""
        values = [row.value for row in self.rows[name].values()]
        return fmean(values) if values else None

    def loss(self, name: str) -> LossSoFar | None:
        """What a configuration loses, as far as it is known."""
        if name not in self.rows or name == self.control:
            return None
        return loss_so_far(self.rows[self.control], self.rows[name], self.order, self.terms)

    def gain(self, by: Gained, name: str) -> float | None:
        """What a configuration gains by counting, over the rows that both have answered; None without counts."""
        before, after = self.rows[self.control], self.rows.get(name, {})
        common = [
            (first, second)
            for row in _common(before, after, self.order)
            if (first := before[row]).effect is not None and (second := after[row]).effect is not None
        ]
        if not common:
            return None
        control, own = (_counted(rows) for rows in zip(*common, strict=True))
        if by.startswith("predicted:"):
            return None  # rows do not say what shape their model has
        if by == "work":
            return control.flops / own.flops if own.flops else None
        forwards = [
            sum(sums.kinds[kind].forwards for kind in ("block", "sub", "commit")) for sums in (control, own)
        ]
        tokens = [sum(row.tokens or 0 for row in rows) for rows in zip(*common, strict=True)]
        return (tokens[1] / forwards[1]) / (tokens[0] / forwards[0]) if all((*forwards, *tokens)) else None


def sequential_of(store: Store, planned: Experiment) -> StoppingSweep | None:
    """What an experiment knows of its runs that may end; None where all went to their end, or none was planned."""
    terms = planned.until_decided
    if not isinstance(terms, Terms):
        return None
    controls = [member for member in planned.members if member.folder == terms.control]
    names = [member for member in controls if member.configuration == planned.control] or controls
    if not names:
        return None
    control = names[0]
    return StoppingSweep(
        task=control.task,
        limit=control.limit,
        terms=terms,
        control=control.configuration,
        runs={
            member.configuration: RunFolder(store.runs_folder / member.folder)
            for member in planned.members
            if (member.kind, member.task, member.limit) == (control.kind, control.task, control.limit)
        },
    )


def _readable_rows(run: RunFolder) -> dict[str, AnsweredRow]:
    try:
        return rows_of(run)
    except UnmaskError:
        return {}


def _counted(rows: Sequence[AnsweredRow]) -> WorkSums:
    sums = [WorkSums.from_row(row.effect) for row in rows if row.effect is not None]
    for other in sums[1:]:
        sums[0].add(other)
    return sums[0]
