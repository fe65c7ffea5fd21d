"""Accuracy against speed: which configurations are worth having, which another one beats, and AUP.

Plain decoding at other thresholds is always among the competitors, also between the thresholds that were
tried: a policy below that curve is dominated, because a threshold alone does better.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp
from statistics import fmean

from unmask.analysis.gains import Speedup, counted_gain, speedup_of
from unmask.analysis.likeness import (
    acts,
    but_threshold,
    control_of,
    method_of,
    outcome_class,
    threshold,
    tokens_a_forward,
)
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
    settings: Hashable
    """Equal for points that may lie on one curve of thresholds: checkpoint and all other decode settings."""
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


TOLERATED = 5.0
"""Percent below a curve's first point from which a point no longer counts for AUP."""
STEEPNESS = 3.0
"""How fast AUP's weight falls with the distance to the best accuracy."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One configuration of a curve."""

    configuration: str
    tokens_a_forward: float
    accuracy: float
    """In percent."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The configurations of one method, and its accuracy under parallelism."""

    method: str
    points: tuple[CurvePoint, ...]
    """That count, from the fewest tokens a forward on."""
    left_out: tuple[CurvePoint, ...]
    """More than five points below the first."""
    best: float
    """The best accuracy of all methods of the comparison, in percent."""

    @property
    def aup(self) -> float:
        """The area under the curve, weighted by accuracy (hao-ai-lab/d3LLM, AUP_leaderboard)."""
        return aup([(point.tokens_a_forward, point.accuracy) for point in self.points], self.best)


def aup(points: Sequence[tuple[float, float]], best: float) -> float:
    """Accuracy under parallelism of points (tokens a forward, accuracy in percent), given the best accuracy of all.

    The first point counts as a rectangle, each further one adds a trapezium of weighted accuracies.
    """
    weighted = [
        (rate, accuracy * min(exp(-STEEPNESS * (1 - accuracy / best)), 1)) for rate, accuracy in points
    ]
    first_rate, first_accuracy = points[0]
    steps = ((after - before) * (high + low) / 2 for (before, low), (after, high) in pairwise(weighted))
    return first_rate * first_accuracy + sum(steps)


def curves(group: TaskResults) -> list[Curve]:
    """The curves of a task that have two points or more; configurations that must agree are one point."""
    methods: dict[Hashable, dict[Hashable, CurvePoint]] = {}
    names: dict[Hashable, str] = {}
    for entry in group.entries:
        rate = tokens_a_forward(entry)
        if rate is not None:
            method, name = method_of(entry)
            names.setdefault(method, name)
            point = CurvePoint(entry.configuration, rate, entry.value * 100)
            methods.setdefault(method, {}).setdefault(outcome_class(entry), point)
    best = max((point.accuracy for points in methods.values() for point in points.values()), default=0.0)
    made = []
    for method, by_class in methods.items():
        points = sorted(by_class.values(), key=lambda point: (point.tokens_a_forward, -point.accuracy))
        counted = [point for point in points if point.accuracy >= points[0].accuracy - TOLERATED]
        if len(points) > 1 and best:
            left_out = tuple(point for point in points if point not in counted)
            made.append(Curve(names[method], tuple(counted), left_out, best))
    return made
