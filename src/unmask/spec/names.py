"""Names in a recipe: what may be one, and whether what refers to one finds it."""

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from unmask.errors import UnmaskError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check_name(name: str, what: str) -> None:
    """Refuse what cannot name a file."""
    if not NAME.fullmatch(name):
        raise UnmaskError(
            f"{what} is {name!r}; use letters, digits, dots, dashes and underscores, so that it can name a file."
        )


def check_once(names: Sequence[str], what: str, advice: str) -> None:
    """Refuse a name that is given twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UnmaskError(f"{count} {what} are called {name}; {advice}.")


def check_known(name: str, known: Sequence[str], what: str, where: str) -> None:
    """Refuse a reference to nothing."""
    if name not in known:
        raise UnmaskError(f"{what} is {name!r}, which is not among the {where}: {', '.join(known)}.")


def check_patterns(patterns: Sequence[str], names: Sequence[str], what: str) -> None:
    """Refuse patterns that no configuration fits."""
    if not patterns:
        raise UnmaskError(f"{what} is empty; give names or patterns of configurations.")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnmaskError(
                f"{what} is {pattern!r}, which fits none of the configurations: {', '.join(names)}."
            )
