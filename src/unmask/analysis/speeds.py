"""Speed-ups of timing runs: ratios to the control in the same round, and intervals at any level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

from unmask.analysis.records import Table, Timing
from unmask.cost.median import median_interval


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster than the control, from the rounds of one timing run."""

    value: float
    """Median over the rounds."""
    low: float
    high: float
    level: float
    """The level asked for; with few rounds it is reached only if the logarithms of the ratios are about normal."""
    coverage: float
    """Of the order statistics alone, whatever the distribution."""
    rounds: int
    task: str | None = None
    """What was timed, where it is known."""


def ratios(control: Timing, timing: Timing) -> list[float]:
    """The control's time a token (or request) divided by the configuration's, round by round."""
    if len(control.seconds) != len(timing.seconds) or not control.units or not timing.units:
        return []
    return [
        (before / control.units) / (after / timing.units)
        for before, after in zip(control.seconds, timing.seconds, strict=True)
        if before > 0 and after > 0
    ]


def ratio_interval(values: Sequence[float], level: float = 0.95) -> Speedup:
    """The median of ratios with the wider of two intervals.

    One is made of order statistics, which assume nothing but reach no high level with few rounds; the other
    is Student's interval of the logarithms.
    """
    order = median_interval(values, level)
    low, high = order.low, order.high
    if len(values) > 1:
        from scipy.stats import t

        logs = [math.log(value) for value in values]
        half = float(t.ppf(0.5 + level / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
        low, high = min(low, math.exp(fmean(logs) - half)), max(high, math.exp(fmean(logs) + half))
    return Speedup(median(values), low, high, level, order.coverage, len(values))


def speedup_of(
    table: Table,
    experiment: str,
    configuration: str,
    control: str,
    task: str | None = None,
    level: float = 0.95,
) -> Speedup | None:
    """The speed-up of a configuration over the control from the timing run that holds both, if there is one."""
    timing = table.timing(experiment, configuration, task)
    if timing is None:
        return None
    beside = [one for one in table.timings if one.run == timing.run and one.experiment == experiment]
    base = next((one for one in beside if one.configuration == control), None)
    values = ratios(base, timing) if base else []
    if values:
        return replace(ratio_interval(values, level), task=timing.task)
    if timing.control == control and timing.speedup:
        recorded = timing.speedup
        coverage = float(recorded.get("coverage") or 0.0)
        low, middle, high = (float(recorded[name]) for name in ("low", "median", "high"))
        return Speedup(middle, low, high, coverage, coverage, 0, timing.task)
    return None
