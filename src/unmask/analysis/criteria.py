"""The criteria of a recipe: whom they are about and what they ask, in words."""

from fnmatch import fnmatchcase

from unmask.analysis.words import points
from unmask.spec.recipe import SuccessSpec


def is_candidate(configuration: str, criteria: SuccessSpec) -> bool:
    """Whether the criteria are about a configuration."""
    return configuration != criteria.control and any(
        fnmatchcase(configuration, pattern) for pattern in criteria.candidates
    )


def asked(criteria: SuccessSpec) -> str:
    """What would confirm the hypothesis."""
    bounds = criteria.confirm
    return f"faster than {bounds.speedup:g}x, losing less than {points(bounds.drop)} on {criteria.task}"
