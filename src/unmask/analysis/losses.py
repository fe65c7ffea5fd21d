"""What configurations lose against the control, and how sure that is: one rule for tables, findings and verdicts.

All comparisons of a task with its control hold together at one level (95 %): each interval is taken at the level that
Bonferroni's correction gives, and each p-value is multiplied by the number of comparisons. Interval and p-value belong
to the same test, so one excludes 0 where the other is below 5 %. What must be equal by construction has no error.
"""

from dataclasses import dataclass

from unmask.analysis.likeness import control_of, must_agree, outcome_class
from unmask.analysis.samples import difference
from unmask.analysis.statistics import LEVEL, Interval, bonferroni, bonferroni_level, unpaired_interval
from unmask.analysis.stopping import StoppingSweep
from unmask.analysis.table import ConfigurationResult, Table, TaskResults
from unmask.analysis.words import in_words, level_in_percent


@dataclass(frozen=True, slots=True)
class Comparisons:
    """How many comparisons hold together at which level."""

    count: int
    together: float = LEVEL
    sequential: StoppingSweep | None = None
    """Where runs may end as soon as they are decided: intervals hold at every look then."""

    @property
    def level(self) -> float:
        """Of each interval."""
        return bonferroni_level(self.together, self.count)

    def __str__(self) -> str:
        looks = " that hold at every look" if self.sequential else ""
        each = f"{level_in_percent(self.level)} intervals{looks}"
        if self.count < 2:
            return each
        together = level_in_percent(self.together)
        return f"{each}, so that all {in_words(self.count)} comparisons hold together at {together}"


@dataclass(frozen=True, slots=True)
class Loss:
    """The control's accuracy minus a configuration's."""

    value: float
    interval: Interval
    """At the level of the table; nothing but 0 where the two are equal by construction."""
    rows: int
    discordant: float | None
    """Share of the rows on which the two disagree; None where that is not known."""
    paired: bool
    p_value: float | None
    """Corrected for the number of comparisons; None where rows are not paired or nothing can differ."""
    equal: bool = False
    """By construction."""

    @property
    def differs(self) -> bool:
        """Whether the loss is beyond chance: its interval does not hold 0."""
        return not self.interval.holds(0.0)


def comparisons_of(table: Table, group: TaskResults) -> Comparisons:
    """Comparisons with the control on a task, planned ones too; what must be equal counts once, or not at all."""
    control = control_of(group)
    if group.sequential is not None:
        return Comparisons(group.sequential.terms.comparisons, sequential=group.sequential)
    classes = {outcome_class(entry) for entry in group.entries if entry is not control}
    classes -= {outcome_class(control)} if control else set()
    known = {entry.configuration for entry in group.entries} | {group.experiment.control}
    about = group.experiment
    waiting = {
        run.configuration
        for run in (*about.missing, *about.retracted)
        if run.task == group.task and run.configuration is not None
    }
    timed = {timing.configuration for timing in table.timings_of(about.name) if timing.task == group.task}
    return Comparisons(max(1, len(classes) + len((waiting | timed) - known)))


def loss_of(
    control: ConfigurationResult, entry: ConfigurationResult, comparisons: Comparisons
) -> Loss | None:
    """How much a configuration loses, paired by row where rows are on disk; None where no rows are known."""
    level, rows = comparisons.level, entry.rows or 0
    if must_agree(control, entry):
        return Loss(
            value=control.value - entry.value,
            interval=Interval(0.0, 0.0, 1.0, "by construction"),
            rows=rows,
            discordant=0.0,
            paired=True,
            p_value=None,
            equal=True,
        )
    if comparisons.sequential is not None:
        return anytime_loss(comparisons.sequential, entry.configuration)
    pair = difference(control, entry, level)
    if pair is not None:
        return Loss(
            value=-pair.value,
            interval=Interval(-pair.interval.high, -pair.interval.low, level, pair.interval.method),
            rows=pair.count,
            discordant=pair.counts.discordant if pair.counts else None,
            paired=True,
            p_value=bonferroni(pair.p_value, comparisons.count),
        )
    if not (control.rows and rows):
        return None
    return Loss(
        value=control.value - entry.value,
        interval=unpaired_interval(entry.value, rows, control.value, control.rows, level),
        rows=rows,
        discordant=None,
        paired=False,
        p_value=None,
    )


def anytime_loss(sequential: StoppingSweep, configuration: str) -> Loss | None:
    """What a configuration loses in a sweep that stops when it knows: never a p-value, which supposes one look."""
    known = sequential.loss(configuration)
    if known is None:
        return None
    return Loss(known.value, known.interval, known.rows, known.discordant, paired=True, p_value=None)
