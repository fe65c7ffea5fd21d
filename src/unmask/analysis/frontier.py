"""Accuracy against speed: which configurations are worth having, and which another one beats.

Plain decoding at other thresholds is always among the competitors, also between the thresholds that were
tried: a policy below that curve is dominated, because a threshold alone does better.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from unmask.analysis.gains import Speedup, counted_gain, speedup_of
from unmask.analysis.likeness import acts, control_of, outcome_class, threshold
from unmask.analysis.losses import Comparisons, Loss, comparisons_of, loss_of
from unmask.analysis.samples import outcomes
from unmask.analysis.statistics import LEVEL, Interval, mean_interval
from unmask.analysis.table import ConfigurationResult, Table, TaskResults
from unmask.spec.recipe import Gained


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration on the plane of accuracy and gain."""

    configuration: str
    accuracy: float
    gain: float
    """How many times better than the control it is."""
    axis: Gained
    """By what."""
    acts: bool
    threshold: float | None
    """Of plain decoding; None under a policy."""
    speedup: Speedup | None
    loss: Loss | None
    """Against the control; None for the control itself and without rows."""
    dominated_by: tuple[str, ...] = ()
    """Configurations at least as accurate and as fast, and better in one; or two thresholds of the curve."""
    certainly: bool = False
    """Whether a competitor is better in both beyond the intervals."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Plain decoding at one threshold for a share of the questions, and at another one for the rest."""

    slower: str
    faster: str
    share: float
    """Of the questions that the slower one answers."""
    accuracy: float
    """That is to be expected."""


def frontier(table: Table, group: TaskResults, axis: Gained = "speed") -> list[Point]:
    """All configurations of a task whose gain is known, the fastest first."""
    control = control_of(group)
    if control is None:
        return []
    comparisons = comparisons_of(table, group)
    points = [_point(table, control, entry, axis, comparisons) for entry in group.entries]
    placed = [point for point in points if point is not None]
    curve = sorted((point for point in placed if point.threshold is not None), key=lambda rival: rival.gain)
    twins = {entry.configuration: outcome_class(entry) for entry in group.entries}
    judged = [
        # Configurations that must decode alike differ by noise only, so they do not beat each other.
        _judged(
            point,
            [rival for rival in placed if twins[rival.configuration] != twins[point.configuration]],
            curve,
        )
        for point in placed
    ]
    return sorted(judged, key=lambda point: (-point.gain, -point.accuracy))


def best_under(points: list[Point], budget: float, certain: bool = True) -> Point | None:
    """The fastest configuration that loses at most `budget`: by its whole interval if `certain`, else by its value."""
    allowed = [
        point
        for point in points
        if point.loss is None
        or (point.loss.interval.high if certain and point.loss.paired else point.loss.value) <= budget
    ]
    return max(allowed, key=lambda point: (point.gain, point.accuracy), default=None)


def _point(
    table: Table,
    control: ConfigurationResult,
    entry: ConfigurationResult,
    axis: Gained,
    comparisons: Comparisons,
) -> Point | None:
    name, level = entry.configuration, comparisons.level
    speedup = speedup_of(table, entry.experiment, name, control.configuration, entry.task, level)
    if axis == "speed":
        gain = speedup.value if speedup else 1.0 if entry is control and _is_timed(table, entry) else None
    else:
        counted = counted_gain(axis, control, entry)
        gain = counted.value if counted else None
    if gain is None:
        return None
    return Point(
        configuration=entry.configuration,
        accuracy=entry.value,
        gain=gain,
        axis=axis,
        acts=acts(entry),
        threshold=threshold(entry),
        speedup=speedup,
        loss=None if entry is control else loss_of(control, entry, comparisons),
    )


def _is_timed(table: Table, entry: ConfigurationResult) -> bool:
    return table.timing(entry.experiment, entry.configuration, entry.task) is not None


def _judged(point: Point, rivals: list[Point], curve: list[Point]) -> Point:
    better = [
        other
        for other in rivals
        if other.accuracy >= point.accuracy
        and other.gain >= point.gain
        and (other.accuracy, other.gain) != (point.accuracy, point.gain)
    ]
    if better:
        certainly = any(_clearly(other, point) for other in better)
        names = tuple(
            rival.configuration for rival in sorted(better, key=lambda rival: (-rival.accuracy, -rival.gain))
        )
        return replace(point, dominated_by=names, certainly=certainly)
    if point.acts:
        return replace(point, dominated_by=_below_curve(point, curve))
    return point


def _below_curve(point: Point, curve: list[Point]) -> tuple[str, ...]:
    """The two thresholds between which plain decoding is expected to do better at the same gain."""
    mixture = mixture_at(point.gain, curve)
    if mixture is not None and mixture.accuracy > point.accuracy:
        return mixture.slower, mixture.faster
    return ()


def mixture_at(gain: float, curve: list[Point]) -> Mixture | None:
    """The mixture of neighbouring thresholds that gains so much; None beyond the thresholds that were tried.

    What a question costs, as a share of what it costs the control, is one over the gain, so that costs can be mixed.
    """
    for slower, faster in pairwise(sorted(curve, key=lambda point: point.gain)):
        if slower.gain <= gain <= faster.gain and slower.gain < faster.gain:
            share = (1 / gain - 1 / faster.gain) / (1 / slower.gain - 1 / faster.gain)
            accuracy = share * slower.accuracy + (1 - share) * faster.accuracy
            return Mixture(slower.configuration, faster.configuration, share, accuracy)
    return None


def above_mixture(
    mixture: Mixture, group: TaskResults, configuration: str, level: float = LEVEL
) -> tuple[float, Interval] | None:
    """A configuration's accuracy minus what a mixture is expected to have, paired by row; None without rows.

    The share of the mixture is taken as known.
    """
    names = (configuration, mixture.slower, mixture.faster)
    rows = [outcomes(entry) if (entry := group.entry(name)) else None for name in names]
    own, slower, faster = rows
    if not own or not slower or not faster or not own.keys() == slower.keys() == faster.keys():
        return None
    share = mixture.share
    differences = [own[row] - share * slower[row] - (1 - share) * faster[row] for row in own]
    return fmean(differences), mean_interval(differences, level)


def _clearly(better: Point, worse: Point) -> bool:
    """Whether the intervals of both, each against the control, do not meet."""
    if better.axis == "speed" and better.speedup and worse.speedup:
        faster = better.speedup.low > worse.speedup.high
    else:
        faster = better.gain > worse.gain and better.axis != "speed"
    if worse.loss is None:
        return False
    upper = better.loss.interval.high if better.loss else 0.0
    return faster and upper < worse.loss.interval.low
