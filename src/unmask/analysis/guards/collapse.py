"""Answers that run on or break off: their tokens/s mean nothing."""

from unmask.analysis.guards.finding import About, Finding, Severity
from unmask.analysis.likeness import control_of
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.words import percent

ABOUT = About(
    id="collapse",
    severity="invalid",
    title="Far more or far fewer tokens than the control",
    explanation=(
        "A model that has lost the thread repeats itself until the length limit, or stops at once. Repeated tokens are "
        "decoded quickly, so tokens/s rises while the answers are worthless."
    ),
    advice="Look at some answers; compare seconds a request instead of tokens/s, or drop the configuration.",
)
LONGER, MUCH_LONGER, SHORTER = 1.5, 2.0, 0.5
"""Tokens a row, as multiples of the control's."""
CUT, MOSTLY_CUT = 0.1, 0.5
"""Share of answers ended by the length limit, beyond the control's share."""


def check(table: Table) -> list[Finding]:
    """Compare lengths and ends of answers with the control's."""
    found = []
    for group in table.groups():
        control = control_of(group)
        if control is None:
            continue
        for entry in group.entries:
            if entry is not control:
                found += _length(group, control, entry) + _ends(group, control, entry)
    return found


def _length(group: Group, control: Entry, entry: Entry) -> list[Finding]:
    if not (control.tokens and entry.tokens and control.rows and entry.rows):
        return []
    before, after = control.tokens / control.rows, entry.tokens / entry.rows
    ratio = after / before
    if SHORTER <= ratio <= LONGER:
        return []
    severity: Severity = "invalid" if ratio >= MUCH_LONGER else "warning"
    sentence = (
        f"{group.name}: {entry.configuration} wrote {after:.0f} tokens a row, {control.configuration} {before:.0f} "
        f"({ratio:.2f}x): its tokens/s cannot be compared."
    )
    return [ABOUT.finding(severity, sentence, group, [entry])]


def _ends(group: Group, control: Entry, entry: Entry) -> list[Finding]:
    if entry.truncated is None or control.truncated is None or not (control.rows and entry.rows):
        return []
    before, after = control.truncated / control.rows, entry.truncated / entry.rows
    if after - before < CUT:
        return []
    severity: Severity = "invalid" if after - before >= MOSTLY_CUT else "warning"
    sentence = (
        f"{group.name}: {percent(after, 0)} of the answers of {entry.configuration} were cut off at the length limit, "
        f"{percent(before, 0)} of those of {control.configuration}."
    )
    return [ABOUT.finding(severity, sentence, group, [entry])]
