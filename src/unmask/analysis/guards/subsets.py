"""Subsets of layers that make no difference."""

from itertools import combinations

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import behaviour, subset_axis
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.samples import difference
from unmask.analysis.statistics import Interval, bonferroni_level, unpaired_interval
from unmask.analysis.words import listed, percent, points

ABOUT = About(
    id="subsets-within-error",
    severity="warning",
    title="Subsets of layers differ by less than their error",
    explanation=(
        "Putting back a layer's output cuts the residual stream: the logits are those of the last computed step, "
        "whatever layers are named, so under `output` the subset axis measures nothing. Under other units it measures "
        "something only if the differences exceed their error."
    ),
    advice="Report one figure for each k, or use a unit that lets new tokens through (residual, attention, mlp).",
)


def check(table: Table) -> list[Finding]:
    """Compare the subsets of every policy that names layers."""
    return [finding for group in table.groups() for finding in _of(group)]


def _of(group: Group) -> list[Finding]:
    found = []
    for entries in subset_axis(group.entries):
        by_construction = len({behaviour(entry) for entry in entries}) == 1
        pairs = list(combinations(entries, 2))
        intervals = [_interval(one, other, bonferroni_level(0.95, len(pairs))) for one, other in pairs]
        if any(interval is not None and not interval.holds(0.0) for interval in intervals):
            continue
        if None in intervals and not by_construction:
            continue
        if len({entry.value for entry in entries}) == 1 and not all(entry.answers for entry in entries):
            continue
        found.append(_finding(group, entries, intervals, by_construction))
    return found


def _finding(
    group: Group, entries: list[Entry], intervals: list[Interval | None], by_construction: bool
) -> Finding:
    values = [entry.value for entry in entries]
    apart = max(values) - min(values)
    figures = ", ".join(f"{entry.configuration} {percent(entry.value)}" for entry in entries)
    halves = [(interval.high - interval.low) / 2 for interval in intervals if interval is not None]
    error = f", less than their error of {points(max(halves))}" if halves and apart else ""
    reason = "; under `output` they are equal by construction" if by_construction else ""
    sentence = f"{group.name}: {figures} differ by {points(apart)} at most{error}{reason}."
    if not apart:
        sentence = f"{group.name}: {listed(entry.configuration for entry in entries)} are equal{reason}."
    reported_apart = by_construction and apart > 0
    advice = None if by_construction else "Report one figure for each k until more rows show a difference."
    return ABOUT.finding("warning" if reported_apart else "info", sentence, group, entries, advice)


def _interval(one: Entry, other: Entry, level: float) -> Interval | None:
    """Paired by row where rows are on disk, else from the two accuracies alone."""
    if one.answers and one.answers == other.answers:
        return None
    paired = difference(one, other, level)
    if paired is not None:
        return paired.interval
    if one.rows and other.rows:
        return unpaired_interval(one.value, one.rows, other.value, other.rows, level)
    return None
