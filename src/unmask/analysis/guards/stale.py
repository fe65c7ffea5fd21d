"""Accuracies that stay to the digit although the answers changed: a result of an earlier run was read."""

from itertools import combinations

from unmask.analysis.guards.finding import About, Finding, Severity
from unmask.analysis.likeness import acts, likeness
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.words import listed, percent

ABOUT = About(
    id="stale-accuracy",
    severity="invalid",
    title="The accuracy stays to the digit although the answers changed",
    explanation=(
        "When answers change, some become right and some wrong; that the sums cancel exactly happens now and then, "
        "but not for many configurations at once. Then the accuracies belong to other answers than the ones on record."
    ),
    advice="Compute the accuracies again from the answers that are there.",
)
MANY = 4
"""Configurations from which chance is no explanation."""
FEWEST_ROWS = 100
"""In fewer rows equal accuracies are common."""


def check(table: Table) -> list[Finding]:
    """Compare repetitions of the same configurations, and different configurations of one group."""
    return [*_repeated(table), *(one for group in table.groups() for one in _within(group))]


def _repeated(table: Table) -> list[Finding]:
    """The same configurations in two experiments: all accuracies equal, answers changed."""
    found = []
    for one, other in combinations(table.groups(), 2):
        if (one.task, one.limit) != (other.task, other.limit) or one.experiment.name == other.experiment.name:
            continue
        pairs = [
            (entry, again)
            for entry in one.entries
            for again in other.entries
            if entry.configuration == again.configuration and likeness(entry) == likeness(again)
        ]
        changed = [pair for pair in pairs if _answers_differ(*pair)]
        if len(changed) < 2 or any(entry.value != again.value for entry, again in pairs):
            continue
        (entry, again) = changed[0]
        tokens = (
            f" ({entry.configuration}: {entry.tokens:,} then {again.tokens:,} tokens)" if entry.tokens else ""
        )
        sentence = (
            f"{one.name}: all {len(pairs)} accuracies of {one.experiment.name} and {other.experiment.name} are equal "
            f"to the digit, although the answers of {len(changed)} configurations changed{tokens}."
        )
        severity: Severity = "invalid" if len(changed) >= MANY else "warning"
        found.append(ABOUT.finding(severity, sentence, other, [pair[1] for pair in changed]))
    return found


def _within(group: Group) -> list[Finding]:
    """Unlike configurations of one group with one value and different answers."""
    values: dict[float, list[Entry]] = {}
    for entry in group.entries:
        values.setdefault(entry.value, []).append(entry)
    found = []
    for value, entries in values.items():
        differing = _one_of_each(entries)
        if len(differing) < MANY or not any(acts(entry) for entry in differing):
            continue
        if 0 < value < 1 and min(entry.rows or 0 for entry in differing) >= FEWEST_ROWS:
            sentence = (
                f"{group.name}: {listed(entry.configuration for entry in differing)} all answered differently and have "
                f"exactly the same accuracy, {percent(value)}."
            )
            found.append(ABOUT.finding("warning", sentence, group, differing))
    return found


def _one_of_each(entries: list[Entry]) -> list[Entry]:
    """One entry of every set of answers, and of every way of decoding."""
    by_answers: dict[object, Entry] = {}
    for entry in entries:
        mark = entry.answers or entry.tokens
        if mark is not None:
            by_answers.setdefault(mark, entry)
    by_way = {likeness(entry): entry for entry in by_answers.values()}
    return list(by_way.values())


def _answers_differ(one: Entry, other: Entry) -> bool:
    if one.answers and other.answers:
        return one.answers != other.answers
    return one.tokens is not None and other.tokens is not None and one.tokens != other.tokens
