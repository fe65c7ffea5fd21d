"""What a configuration gains over the control: speed in a timing run, counted work, tokens a forward.

Speed-ups are ratios to the control in the same round and have intervals at any level. Counted gains come from the
ledgers of results over the same rows; they are exact for these rows. A predicted speed is such a count, priced by what
is known and assumed of a card.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

from unmask.analysis.likeness import operations, tokens_a_forward
from unmask.analysis.table import ConfigurationResult, ConfigurationTiming, Measured, Table
from unmask.analysis.words import counted
from unmask.cost.cards import card_named
from unmask.cost.median import median_interval
from unmask.cost.prediction import Counted, seconds_of_counts
from unmask.cost.shape import ModelShape
from unmask.errors import UnmaskError
from unmask.spec.recipe import Gained

FEWEST_ROUNDS = 3
"""With fewer rounds their spread is not known, so there is no interval."""
FEWEST_COVERAGE = 0.75
"""Recorded intervals whose order statistics cover less than this are not used."""


GAINED: dict[Gained, str] = {
    "speed": "speed",
    "work": "counted work",
    "tokens_a_forward": "tokens a forward",
    "predicted:rtx6000": "speed predicted for the rtx6000",
    "predicted:a100": "speed predicted for the a100",
    "predicted:l40s": "speed predicted for the l40s",
    "predicted:h100": "speed predicted for the h100",
}
"""What can be gained, in words that follow `by`."""
PREDICTED: dict[str, str] = {
    by: by.removeprefix("predicted:") for by in GAINED if by.startswith("predicted:")
}
"""The card that a predicted speed is about."""
COUNTED: tuple[Gained, ...] = ("work", "tokens_a_forward")
"""What ledgers count, so that no clock is needed."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better than the control a configuration is by one thing."""

    by: Gained
    value: float
    low: float
    high: float
    """The interval; where the gain is counted, both bounds are its value."""
    speedup: "Speedup | None" = None
    """The timing run behind a gain of speed."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster a configuration is than the control, from the rounds of one timing run."""

    value: float
    """Median over the rounds."""
    low: float
    high: float
    """The interval is 0 to infinity where there are too few rounds for one."""
    level: float
    """The level asked for; with few rounds it is reached only if the logarithms of the ratios are about normal."""
    coverage: float
    """Coverage of the order statistics alone, which holds for every distribution."""
    rounds: int
    task: str | None = None
    """What was timed, where it is known."""
    prompts: int = 0
    """How many prompts were timed; 0 where it is not known."""

    @property
    def bounded(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.high)

    @property
    def bounds(self) -> str:
        """The interval in words."""
        return f"{self.low:.2f} to {self.high:.2f}" if self.bounded else "no interval, too few rounds"

    @property
    def source(self) -> str:
        """What was timed, in words."""
        prompts = f"{counted(self.prompts, 'prompt')} of " if self.prompts else ""
        rounds = f" in {counted(self.rounds, 'round')}" if self.rounds else ""
        return f"{prompts}{self.task or 'an unknown task'}{rounds}"


def ratios(control: ConfigurationTiming, timing: ConfigurationTiming) -> list[float]:
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
    is Student's interval of the logarithms. Fewer than three ratios have none.
    """
    order = median_interval(values, level)
    if len(values) < FEWEST_ROUNDS:
        return Speedup(median(values), 0.0, math.inf, level, 0.0, len(values))
    from scipy.stats import t

    logs = [math.log(value) for value in values]
    half = float(t.ppf(0.5 + level / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    low, high = min(order.low, math.exp(fmean(logs) - half)), max(order.high, math.exp(fmean(logs) + half))
    return Speedup(median(values), low, high, level, order.coverage, len(values))


def speedup_of(
    table: Table,
    experiment: str,
    configuration: str,
    control: str,
    task: str | None = None,
    level: float = 0.95,
) -> Speedup | None:
    """The speed-up of a configuration over the control from the best timing run that holds both, if there is one."""
    for timing in table.ranked_timings(experiment, configuration, task):
        speedup = _against(table, timing, control, level)
        if speedup is not None:
            return replace(speedup, task=timing.task, prompts=timing.prompts or timing.requests)
    return None


def _against(table: Table, timing: ConfigurationTiming, control: str, level: float) -> Speedup | None:
    """The speed-up over the control of the same timing run: from its rounds, or as recorded without them."""
    beside = [
        other for other in table.timings if (other.run, other.experiment) == (timing.run, timing.experiment)
    ]
    base = next((other for other in beside if control in (other.configuration, *other.also)), None)
    values = ratios(base, timing) if base else []
    if values:
        return ratio_interval(values, level)
    if (base.configuration if base else control) != timing.control or not timing.speedup:
        return None
    recorded = timing.speedup
    coverage = float(recorded.coverage or 0.0)
    if recorded.low is None or recorded.median is None or recorded.high is None:
        return None
    low, middle, high = float(recorded.low), float(recorded.median), float(recorded.high)
    if coverage < FEWEST_COVERAGE:
        low, high = 0.0, math.inf
    return Speedup(middle, low, high, coverage, coverage, 0)


def timed_gain(speedup: Speedup | None) -> Gain | None:
    """A speed-up as a gain."""
    return None if speedup is None else Gain("speed", speedup.value, speedup.low, speedup.high, speedup)


def counted_gain(by: Gained, control: ConfigurationResult, entry: ConfigurationResult) -> Gain | None:
    """A gain that is counted over the same rows; None where nothing was counted, or not over the same requests."""
    if by == "work" or by in PREDICTED:
        before, after = (
            operations(each) if by == "work" else _predicted(PREDICTED[by], each) for each in (control, entry)
        )
        ratio = before / after if before and after and _requests(control) == _requests(entry) else None
    else:
        before, after = tokens_a_forward(control), tokens_a_forward(entry)
        ratio = after / before if before and after else None
    return exact_gain(by, ratio)


def exact_gain(by: Gained, ratio: float | None) -> Gain | None:
    """A counted ratio as a gain, whose interval is its value."""
    return None if ratio is None else Gain(by, ratio, ratio, ratio)


def _predicted(card: str, result: ConfigurationResult) -> float | None:
    """Seconds that the counted forwards of a result should take on a card, each request alone; None without counts."""
    if not result.effect or result.shape is None:
        return None
    try:
        shape = ModelShape.of(result.shape)
    except UnmaskError:
        return None
    return sum(
        seconds_of_counts(
            Counted(
                part.forwards,
                {kind: work.branch_rows for kind, work in part.by_kind.items()},
                part.layer_calls,
                part.flops,
            ),
            shape,
            card_named(card),
        )
        for part in result.effect.values()
    )


def _requests(result: Measured) -> int:
    return sum(part.requests for part in result.effect.values())
