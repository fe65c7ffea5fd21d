"""Guards: what makes a result invalid or doubtful, found by the program.

A guard is a function in one of the files here, under `@guard` with its title and reasons, and one line of `GUARDS`.
`unmask check`, the canary, the verdict and both forms of the report go by this table.
"""

from unmask.analysis.guards import answers, claims, provenance, speed
from unmask.analysis.guards.finding import ORDER, Finding, Guard, Severity, guard
from unmask.analysis.table import Table

__all__ = ["GUARDS", "ORDER", "Finding", "Guard", "Severity", "guard", "guards_by_name", "run_guards"]

GUARDS: tuple[Guard, ...] = (
    answers.identical_results,
    answers.nothing_skipped,
    speed.controls_differ,
    speed.speed_outlier,
    answers.contradiction,
    answers.damaged_rows,
    answers.stale_accuracy,
    answers.collapse,
    answers.cut_off,
    claims.beyond_ceiling,
    claims.too_few_samples,
    speed.speed_and_ledger,
    speed.speed_source,
    provenance.twins_differ,
    provenance.mixed_provenance,
    provenance.other_checkpoint,
    claims.subsets_within_error,
    claims.no_threshold_curve,
)


def guards_by_name() -> dict[str, Guard]:
    """All guards by their names, in the order of the table."""
    return {guard.name: guard for guard in GUARDS}


def run_guards(table: Table) -> list[Finding]:
    """What all guards find, the worst first."""
    findings = [finding for guard in GUARDS for finding in guard.check(table)]
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))
