"""Quantiles of the normal distribution, from the standard library so that nothing slow is imported."""

from statistics import NormalDist

_STANDARD = NormalDist()


def quantile(probability: float) -> float:
    """The value that a standard normal variable stays below with this probability."""
    return _STANDARD.inv_cdf(probability)


def two_sided(level: float) -> float:
    """How many standard errors an interval of this level reaches to either side."""
    return quantile(0.5 + level / 2)
