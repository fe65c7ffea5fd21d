"""The difference of two proportions measured on different samples: all that foreign summaries allow."""

import math

from unmask.analysis.statistics.intervals import LEVEL, Interval, wilson


def unpaired_interval(
    first: float, first_count: int, second: float, second_count: int, level: float = LEVEL
) -> Interval:
    """Interval of second minus first, from two accuracies and their sample counts.

    Hybrid score interval (Newcombe, Statistics in Medicine 17, 1998, 873-890, method 10). On samples
    that are in truth the same it is wider than a paired interval: the samples' own difficulty counts twice.
    """
    one = wilson(first * first_count, first_count, level)
    two = wilson(second * second_count, second_count, level)
    difference = second - first
    down = math.hypot(second - two.low, one.high - first)
    up = math.hypot(two.high - second, first - one.low)
    return Interval(max(-1.0, difference - down), min(1.0, difference + up), level, "Newcombe")
