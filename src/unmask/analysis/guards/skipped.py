"""A policy that claims to act and skipped nothing."""

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts
from unmask.analysis.records import Entry, Table, Timing
from unmask.analysis.work import reuse_fraction
from unmask.store.result import Effect

ABOUT = About(
    id="nothing-skipped",
    severity="invalid",
    title="Nothing was skipped",
    explanation="The ledger counts every forward; it shows that the policy left out no work on this task.",
    advice="Take the configuration out of this task's tables, or give the policy steps on which it may reuse.",
)


def check(table: Table) -> list[Finding]:
    """Look for ledgers without any reuse."""
    found = []
    results: list[Entry | Timing] = [*table.entries, *table.timings]
    for entry in results:
        if not acts(entry) or reuse_fraction(entry) != 0:
            continue
        reasons = [
            part.inactive for part in entry.effect.values() if isinstance(part, Effect) and part.inactive
        ]
        where = "timing on " if isinstance(entry, Timing) else ""
        said = f": {reasons[0]}" if reasons else ", and its record does not say why"
        found.append(
            ABOUT.finding(
                "warning" if reasons else "invalid",
                f"{where}{entry.task}: {entry.configuration} skipped no layer work at all{said}.",
                entry,
                [entry],
            )
        )
    return found
