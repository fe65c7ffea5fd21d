"""Files of rows that are gone, cut short, or about other rows than the control's."""

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import control_of
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.samples import damage, outcomes

ABOUT = About(
    id="damaged-rows",
    severity="invalid",
    title="The rows behind a result are gone or damaged",
    explanation=(
        "A difference is paired by row, so the rows of both results must be on disk, all of them, and be the same. "
        "An accuracy without its rows cannot be checked."
    ),
    advice="Run the configuration again with `unmask run RECIPE --force NAME`.",
)


def check(table: Table) -> list[Finding]:
    """Look at the file of every result, and at the rows it shares with the control."""
    return [finding for group in table.groups() for entry in group.entries for finding in _of(group, entry)]


def _of(group: Group, entry: Entry) -> list[Finding]:
    wrong = damage(entry)
    if wrong is not None:
        gone = entry.samples is not None and not entry.samples.exists()
        sentence = f"{group.name}: {entry.configuration} has no sound rows: {wrong}"
        return [ABOUT.finding("warning" if gone else "invalid", sentence, group, [entry])]
    control = control_of(group)
    if control is None or control is entry or control.samples is None or entry.samples is None:
        return []
    one, two = outcomes(control), outcomes(entry)
    if one is None or two is None or one.keys() == two.keys():
        return []
    sentence = (
        f"{group.name}: {entry.configuration} shares only {len(one.keys() & two.keys())} of {len(two)} rows with "
        f"{control.configuration}."
    )
    return [ABOUT.finding("invalid", sentence, group, [entry])]
