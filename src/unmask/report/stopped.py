"""Runs that ended before their last row because they were decided: a table of their own, since their rows differ."""

from unmask.analysis.gains import COUNTED
from unmask.analysis.statistics import LEVEL, bonferroni_level
from unmask.analysis.stopping import StoppingSweep
from unmask.analysis.words import MISSING, TIMES, in_percent, level_in_percent, span, times

STOPPED_NOTE = (
    "These runs ended as soon as their fate was certain, and `unmask run --to-the-end` goes on from there. Drops are "
    "paired over the rows that both have answered; their intervals hold at every look, so they have no p-value. "
    "Accuracies have no interval, since when a run ends depends on them."
)


def stopped_headings(sequential: StoppingSweep) -> tuple[str, ...]:
    """The headings of that table."""
    level = level_in_percent(bonferroni_level(LEVEL, sequential.terms.comparisons))
    return (
        "Configuration",
        "Rows",
        "Accuracy (%)",
        f"Drop vs {sequential.control} (points, {level} interval)",
        f"Less work ({TIMES})",
        f"Tokens a forward ({TIMES} {sequential.control})",
        "Why it ended",
    )


def stopped_rows(sequential: StoppingSweep | None) -> list[tuple[str, ...]]:
    """A row for each run that ended before its last row."""
    if sequential is None:
        return []
    return [
        (
            _named(sequential, name),
            f"{end.rows:,} of {end.of:,}",
            in_percent(sequential.accuracy(name)),
            _drop(sequential, name),
            *("1" if name == sequential.control else times(sequential.gain(by, name)) for by in COUNTED),
            end.reason,
        )
        for name, end in sequential.stopped.items()
    ]


def brief_row(sequential: StoppingSweep, name: str) -> dict[str, str]:
    """Cells of a run in the table that `unmask run` ends with, by the titles of their columns."""
    return {
        "Configuration": _named(sequential, name),
        "Accuracy (%)": in_percent(sequential.accuracy(name)),
        f"Drop vs {sequential.control} (points)": ""
        if name == sequential.control
        else _drop(sequential, name),
        f"Less work ({TIMES})": "1" if name == sequential.control else times(sequential.gain("work", name)),
    }


def _named(sequential: StoppingSweep, name: str) -> str:
    return f"{name} (control)" if name == sequential.control else name


def _drop(sequential: StoppingSweep, name: str) -> str:
    loss = sequential.loss(name)
    if loss is None:
        return MISSING
    return f"{in_percent(loss.value)} ({span(loss.interval.low, loss.interval.high)})"
