"""Figures that cannot all be true."""

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import alike
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.samples import disagreement
from unmask.analysis.words import between, listed

ABOUT = About(
    id="contradiction",
    severity="invalid",
    title="Figures that cannot all be true",
    explanation=(
        "The same answers to the same rows have one accuracy. If two configurations answered alike, or must decode "
        "alike and wrote the same number of tokens, and their accuracies differ, one figure is wrong. So is one of the "
        "two if an accuracy is not the mean of its own rows."
    ),
    advice="Score the answers of both again; the usual causes are a stale file and a scorer that is not repeatable.",
)


def check(table: Table) -> list[Finding]:
    """Look for equal answers with different values."""
    found = []
    for group in table.groups():
        for entry in group.entries:
            contrary = disagreement(entry)
            if contrary is not None:
                found.append(ABOUT.finding("invalid", f"{group.name}: {contrary}.", group, [entry]))
        told: set[str] = set()
        for digest, entries in _by(group.entries, "answers").items():
            if len({entry.value for entry in entries}) > 1:
                found.append(_finding(group, entries, f"gave the same answers ({str(digest)[:12]})"))
                told |= {entry.configuration for entry in entries}
        for entries in alike(group.entries):
            for tokens, same in _by(entries, "tokens").items():
                digests = {entry.answers for entry in same if entry.answers}
                names = {entry.configuration for entry in same}
                if len(digests) < 2 and len({entry.value for entry in same}) > 1 and not names <= told:
                    what = f"must decode alike and wrote the same {tokens:,} tokens"
                    found.append(_finding(group, same, what))
    return found


def _by(entries: "tuple[Entry, ...] | list[Entry]", field: str) -> dict[object, list[Entry]]:
    found: dict[object, list[Entry]] = {}
    for entry in entries:
        if getattr(entry, field) is not None:
            found.setdefault(getattr(entry, field), []).append(entry)
    return found


def _finding(group: Group, entries: list[Entry], what: str) -> Finding:
    values = between([entry.value * 100 for entry in entries], "{:.2f}")
    names = listed(entry.configuration for entry in entries)
    return ABOUT.finding(
        "invalid", f"{group.name}: {names} {what}, but their accuracies are {values} %.", group, entries
    )
