"""How many samples a difference needs before it can be seen, and which difference a number can show.

Known before a sweep: only the assumed difference and the assumed share of samples on which two
configurations disagree.
"""

import math

from unmask.analysis.statistics.normal import quantile, two_sided
from unmask.errors import UnmaskError

LEVEL, POWER = 0.95, 0.8
ACCURACY = 0.8
"""Assumed where nothing has been measured: the first published baseline's."""
AGREEMENT = 0.5
"""Paired answers disagree about half as often as independent ones would."""
FEW = 200
"""Rows below which a measured share of changed rows is not taken for the truth."""


def independent_discordance(accuracy: float, difference: float) -> float:
    """Share of samples that two configurations disagree on if they err independently: the careful assumption."""
    other = accuracy - difference
    return accuracy * (1 - other) + other * (1 - accuracy)


def assumed_discordance() -> float:
    """Share of samples that two configurations are taken to disagree on before anything is measured."""
    return AGREEMENT * independent_discordance(ACCURACY, 0.0)


def careful_discordance(measured: float, count: int) -> float:
    """A measured share of changed samples; from few samples it is at least the assumed one."""
    return max(measured, assumed_discordance()) if count < FEW else measured


def samples_needed(difference: float, discordant: float, level: float = LEVEL, power: float = POWER) -> int:
    """Samples at which McNemar's test sees a paired difference with the given power.

    `discordant` is the share of samples answered right by one of the two only. Miettinen, Biometrics 24,
    1968, 339-352; Connor, Biometrics 43, 1987, 207-211.
    """
    size = abs(difference)
    if not 0 < size <= discordant <= 1:
        raise UnmaskError(
            f"A difference of {difference:g} needs at least that share of changed samples; "
            f"{discordant:g} was given (both lie between 0 and 1)."
        )
    spread = two_sided(level) * math.sqrt(discordant) + quantile(power) * math.sqrt(discordant - size**2)
    return math.ceil(spread**2 / size**2)


def samples_for_margin(margin: float, discordant: float, level: float = LEVEL, power: float = POWER) -> int:
    """Samples at which, if nothing is lost in truth, the interval of the paired drop ends below `margin`.

    The variance at the margin is the restricted one that the score interval uses: Nam, Biometrics 53, 1997,
    1422-1430; Liu, Hsueh, Hsieh and Chen, Statistics in Medicine 21, 2002, 231-245.
    """
    if not (0 < margin <= 1 and 0 <= discordant <= 1):
        raise UnmaskError(f"A margin of {margin:g} and a changed share of {discordant:g} must lie in 0 to 1.")
    at_margin = math.sqrt(_restricted_variance(discordant, -margin))
    spread = two_sided(level) * at_margin + quantile(power) * math.sqrt(discordant)
    return max(1, math.ceil(spread**2 / margin**2))


def smallest_margin(count: int, discordant: float, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest margin that `count` samples can show a loss to stay within; infinite when there is none."""
    if samples_for_margin(1.0, discordant, level, power) > count:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle and samples_for_margin(middle, discordant, level, power) <= count:
            high = middle
        else:
            low = middle
    return high


def _restricted_variance(discordant: float, difference: float) -> float:
    """Variance of a sample's change at the likeliest shares, if equally many are gained and lost in truth."""
    b = 2 * difference - discordant
    c = -discordant / 2 * difference * (1 - difference)
    lost = (math.sqrt(b * b - 8 * c) - b) / 4
    # Rounding may leave a little less than nothing at the widest margin.
    return max(0.0, 2 * lost + difference * (1 - difference))


def samples_needed_unpaired(first: float, second: float, level: float = LEVEL, power: float = POWER) -> int:
    """Samples of each of two independent sets at which two accuracies can be told apart.

    Fleiss, Statistical Methods for Rates and Proportions, 1981, section 3.2, without correction.
    """
    if not (0 <= first <= 1 and 0 <= second <= 1) or first == second:
        raise UnmaskError(f"{first:g} and {second:g} are not two different accuracies.")
    mean = (first + second) / 2
    pooled = two_sided(level) * math.sqrt(2 * mean * (1 - mean))
    apart = quantile(power) * math.sqrt(first * (1 - first) + second * (1 - second))
    return math.ceil((pooled + apart) ** 2 / (first - second) ** 2)


def smallest_difference(count: int, discordant: float, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest paired difference that `count` samples show with the given power.

    Infinite when even a change to one side only would not be seen.
    """
    if count < 1 or not 0 < discordant <= 1:
        raise UnmaskError(f"{count} samples and a changed share of {discordant:g} do not make a comparison.")
    if samples_needed(discordant, discordant, level, power) > count:
        return math.inf
    low, high = 0.0, discordant
    for _ in range(60):
        middle = (low + high) / 2
        if middle and samples_needed(middle, discordant, level, power) <= count:
            high = middle
        else:
            low = middle
    return high
