"""One configuration of one task with everything a table says of it; the statistics are those of the analysis."""

from dataclasses import replace

from unmask.analysis.frontier import frontier
from unmask.analysis.likeness import acts, alike, control_of, likeness, reuse_fraction, work_ratio
from unmask.analysis.records import Entry, Group, Table, Timing
from unmask.analysis.samples import difference
from unmask.analysis.speeds import Speedup, speedup_of
from unmask.analysis.statistics import Interval, holm, two_sided, wilson
from unmask.analysis.verdict import loss_of
from unmask.report.document import Line, TaskPart

BUDGET = 0.05
"""Loss that the best configuration may have where no criterion says otherwise."""
LEVEL = 0.95


def task_part(table: Table, group: Group, key: str) -> TaskPart:
    """Everything about one task of an experiment."""
    # A speed belongs to the task it was measured on; the analysis would take one of another task for want of it.
    own = Table(table.experiments, table.entries, tuple(t for t in table.timings if t.task == group.task))
    control = control_of(group)
    lines = [_line(own, group, control, entry) for entry in group.entries]
    tested = [place for place, line in enumerate(lines) if line.p_value is not None]
    corrected = holm([lines[place].p_value or 0.0 for place in tested])
    for place, p_value in zip(tested, corrected, strict=True):
        lines[place] = replace(lines[place], p_value=p_value)
    success = group.experiment.success
    sets = [entries for entries in alike(group.entries) if len(entries) > 1]
    return TaskPart(
        key=key,
        group=group,
        lines=tuple(lines),
        control=control,
        by_speed=tuple(frontier(own, group, "speed")),
        by_work=tuple(frontier(own, group, "work")),
        equal=tuple(tuple(entry.configuration for entry in same) for same in sets if acts(same[0])),
        baselines=next(
            (tuple(entry.configuration for entry in same) for same in sets if not acts(same[0])), ()
        ),
        budget=success.confirm.drop if success else BUDGET,
    )


def accuracy_interval(entry: Entry) -> Interval | None:
    """Wilson's interval; from the standard error where rows are not known; None where nothing is."""
    if entry.rows and 0 <= entry.value <= 1:
        return wilson(entry.value * entry.rows, entry.rows, LEVEL)
    if entry.stderr is None:
        return None
    half = two_sided(LEVEL) * entry.stderr
    return Interval(entry.value - half, entry.value + half, LEVEL, "standard error")


def _line(table: Table, group: Group, control: Entry | None, entry: Entry) -> Line:
    is_control = entry is control
    same = control is not None and not is_control and likeness(entry) == likeness(control)
    compared = control is not None and not is_control
    return Line(
        entry=entry,
        is_control=is_control,
        interval=accuracy_interval(entry),
        loss=loss_of(control, entry, LEVEL) if control is not None and compared else None,
        p_value=_p_value(control, entry) if control is not None and compared and not same else None,
        same_as_control=same,
        skipped=reuse_fraction(entry),
        work=1.0 if is_control else work_ratio(control, entry) if control else None,
        timing=_timing(table, group, entry),
        speedup=_speedup(table, control, entry) if compared else None,
    )


def _p_value(control: Entry, entry: Entry) -> float | None:
    pair = difference(control, entry, LEVEL)
    return None if pair is None else pair.p_value


def _timing(table: Table, group: Group, entry: Entry) -> Timing | None:
    return table.timing(group.experiment.name, entry.configuration, group.task)


def _speedup(table: Table, control: Entry | None, entry: Entry) -> Speedup | None:
    if control is None:
        return None
    return speedup_of(table, entry.experiment, entry.configuration, control.configuration, entry.task, LEVEL)
