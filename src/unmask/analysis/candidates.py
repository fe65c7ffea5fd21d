"""What is known of each candidate of a criterion: its speed-up, its loss, and their intervals."""

from dataclasses import dataclass, replace

from unmask.analysis.criteria import is_candidate
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.samples import difference
from unmask.analysis.speeds import Speedup, speedup_of
from unmask.analysis.statistics import Interval, bonferroni_level, unpaired_interval
from unmask.analysis.words import in_points, points
from unmask.spec.recipe import SuccessSpec


@dataclass(frozen=True, slots=True)
class Loss:
    """The control's accuracy minus the candidate's."""

    value: float
    interval: Interval
    corrected: Interval
    """The same at the level corrected for the number of candidates."""
    rows: int
    discordant: float | None
    """Share of the rows on which the two disagree; None where rows are not paired."""
    paired: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's case."""

    configuration: str
    speedup: Speedup | None
    corrected_speedup: Speedup | None
    loss: Loss | None

    def told(self) -> str:
        """Figures and intervals in words."""
        speed = "no timing"
        if self.speedup:
            speed = f"{self.speedup.value:.2f}x ({self.speedup.bounds})"
        loss = "no result"
        if self.loss:
            between = f"{in_points(self.loss.interval.low)} to {in_points(self.loss.interval.high)}"
            loss = f"loses {points(self.loss.value)} ({between})"
        return f"{self.configuration} {speed}, {loss}"


def candidates_of(
    table: Table, experiment: str, criteria: SuccessSpec, level: float = 0.95
) -> tuple[Candidate, ...]:
    """Every configuration that the criteria name, those without a result too.

    Speeds are those of timing runs on the criteria's own task: on another task a policy gains something else.
    """
    group = judged_group(table, experiment, criteria.task)
    table = replace(table, timings=tuple(one for one in table.timings if one.task == criteria.task))
    control = group.entry(criteria.control) if group else None
    entries = {entry.configuration: entry for entry in group.entries} if group else {}
    timed = [timing.configuration for timing in table.timings_of(experiment)]
    about = table.experiment(experiment)
    planned = [run.configuration for run in (*about.missing, *about.retracted) if run.configuration]
    names = [name for name in dict.fromkeys([*entries, *timed, *planned]) if is_candidate(name, criteria)]
    strict = bonferroni_level(level, len(names))
    return tuple(
        Candidate(
            configuration=name,
            speedup=speedup_of(table, experiment, name, criteria.control, criteria.task, level),
            corrected_speedup=speedup_of(table, experiment, name, criteria.control, criteria.task, strict),
            loss=loss_of(control, entries[name], level, strict) if control and name in entries else None,
        )
        for name in names
    )


def judged_group(table: Table, experiment: str, task: str) -> Group | None:
    """The task's entries; of several limits the one with the most rows."""
    found = [one for one in table.groups() if (one.experiment.name, one.task) == (experiment, task)]
    return max(found, key=lambda one: max(entry.rows or 0 for entry in one.entries), default=None)


def loss_of(control: Entry, entry: Entry, level: float = 0.95, corrected: float | None = None) -> Loss | None:
    """How much a configuration loses, paired by row where rows are on disk."""
    strict = level if corrected is None else corrected
    pair, wide_pair = (difference(control, entry, one) for one in (level, strict))
    if pair is None or wide_pair is None:
        if not (control.rows and entry.rows):
            return None
        plain, wide = (
            unpaired_interval(entry.value, entry.rows, control.value, control.rows, one)
            for one in (level, strict)
        )
        return Loss(control.value - entry.value, plain, wide, entry.rows, None, paired=False)
    return Loss(
        value=-pair.value,
        interval=_turned(pair.interval),
        corrected=_turned(wide_pair.interval),
        rows=pair.count,
        discordant=pair.counts.discordant if pair.counts else None,
        paired=True,
    )


def _turned(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low, interval.level, interval.method)
