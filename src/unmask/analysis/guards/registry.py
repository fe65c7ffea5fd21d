"""All guards, and how they are run together."""

from unmask.analysis.guards import (
    beyond_ceiling,
    collapse,
    competitor,
    contradiction,
    controls,
    few_samples,
    identical,
    ledger,
    outlier,
    provenance,
    rows,
    skipped,
    speed_source,
    stale,
    subsets,
)
from unmask.analysis.guards.finding import ORDER, Finding, Guard
from unmask.analysis.records import Table

GUARDS = tuple(
    Guard(module.ABOUT, module.check)
    for module in (
        identical,
        skipped,
        controls,
        outlier,
        contradiction,
        rows,
        stale,
        collapse,
        beyond_ceiling,
        few_samples,
        ledger,
        speed_source,
        provenance,
        subsets,
        competitor,
    )
)


def run_guards(table: Table) -> list[Finding]:
    """What all guards find, the worst first."""
    found = [finding for guard in GUARDS for finding in guard.check(table)]
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))
