"""Accuracy against speed: which configurations are worth having, and which another one beats.

Plain decoding at other thresholds is always among the competitors, also between the thresholds that were
tried: a policy below that curve is dominated, because a threshold alone does better.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import pairwise

from unmask.analysis.gains import Speedup, counted_gain, speedup_of
from unmask.analysis.likeness import acts, but_threshold, control_of, outcome_class, threshold
from unmask.analysis.losses import Comparisons, Loss, comparisons_of, loss_of
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
    settings: Hashable
    """Equal for points that may lie on one curve of thresholds: checkpoint and all other decode settings."""
    speedup: Speedup | None
    loss: Loss | None
    """Against the control; None for the control itself and without rows."""
    dominated_by: tuple[str, ...] = ()
    """Configurations at least as accurate and as fast, and better in one; or two thresholds of the curve."""
    certainly: bool = False
    """Whether a competitor is better in both beyond the intervals."""


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
            [rival for rival in curve if rival.settings == point.settings],
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
        settings=but_threshold(entry),
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
    """The two thresholds between which plain decoding is expected to do better at the same speed."""
    for slower, faster in pairwise(curve):
        if slower.gain <= point.gain <= faster.gain and slower.gain < faster.gain:
            share = (point.gain - slower.gain) / (faster.gain - slower.gain)
            expected = slower.accuracy + share * (faster.accuracy - slower.accuracy)
            if expected > point.accuracy:
                return slower.configuration, faster.configuration
    return ()


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
