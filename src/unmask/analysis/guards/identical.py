"""Identical results where a policy claims to act."""

from itertools import combinations

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts, behaviour, likeness
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.words import listed, percent
from unmask.analysis.work import reuse_fraction

ABOUT = About(
    id="identical-results",
    severity="invalid",
    title="Identical results where a policy claims to act",
    explanation=(
        "Reuse changes logits, so over many rows some answers change. Configurations that must behave "
        "differently and agree to the last digit were most likely decoded by the same code path."
    ),
    advice=(
        "Look whether the policy reaches this kind of task at all; until then use these figures as one "
        "measurement of the baseline and of nothing else."
    ),
)
FEWEST = 3
"""Results without a digest of their answers must agree this often: two may agree by chance."""


def check(table: Table) -> list[Finding]:
    """Look for groups that answer alike although their policies differ."""
    return [finding for group in table.groups() for finding in (*_by_digest(group), *_by_value(group))]


def _by_digest(group: Group) -> list[Finding]:
    found = []
    digests: dict[str, list[Entry]] = {}
    for entry in group.entries:
        if entry.answers:
            digests.setdefault(entry.answers, []).append(entry)
    for entries in digests.values():
        # A policy that skipped nothing is reported as such; of the others, unlike ones must not answer alike.
        at_work = [entry for entry in entries if not acts(entry) or reuse_fraction(entry) != 0]
        unlike = {likeness(entry) for entry in at_work}
        if len(unlike) > 1 and any(acts(entry) for entry in at_work):
            saved = [percent(reuse_fraction(entry) or 0, 0) for entry in at_work if acts(entry)]
            found.append(
                ABOUT.finding(
                    "warning",
                    f"{group.name}: {listed(entry.configuration for entry in at_work)} gave the same "
                    f"{_rows(at_work[0])} answers, word for word, although {listed(saved)} of the layer "
                    f"work was skipped.",
                    group,
                    at_work,
                    "The skip may be free on this task; compare steps and samples before believing it.",
                )
            )
    return found


def _by_value(group: Group) -> list[Finding]:
    plain = [entry for entry in group.entries if entry.answers is None]
    values: dict[tuple[object, ...], list[Entry]] = {}
    for entry in plain:
        values.setdefault((entry.value, entry.stderr, entry.tokens), []).append(entry)
    found = []
    for entries in values.values():
        unlike = {behaviour(entry) for entry in entries}
        if len(entries) < FEWEST or len(unlike) < 2:
            continue
        if not any(acts(one) or acts(other) for one, other in combinations(entries, 2)):
            continue
        found.append(
            ABOUT.finding(
                "invalid",
                f"{group.name}: {len(entries)} results of {len(unlike)} configurations that differ in what they "
                f"reuse are all exactly {entries[0].value!r} ({percent(entries[0].value)}, {_rows(entries[0])} rows).",
                group,
                entries,
            )
        )
    return found


def _rows(entry: Entry) -> str:
    return "an unknown number of" if entry.rows is None else f"{entry.rows:,}"
