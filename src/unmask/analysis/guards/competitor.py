"""Policies without their honest competitor: plain decoding at a lower threshold."""

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts, threshold
from unmask.analysis.records import Table
from unmask.analysis.words import counted

ABOUT = About(
    id="no-threshold-curve",
    severity="info",
    title="The threshold curve is missing",
    explanation=(
        "Lowering the threshold trades accuracy for speed without any policy. A policy is worth something only "
        "where it beats that curve."
    ),
    advice="Add plain configurations with lower thresholds, for instance decode = { threshold = 0.8 }.",
)


def check(table: Table) -> list[Finding]:
    """Look for a lower threshold than the control's beside the policies."""
    found = []
    for group in table.groups():
        reusing = [entry for entry in group.entries if acts(entry)]
        known = {value for entry in group.entries if (value := threshold(entry)) is not None}
        given = [group.control] if group.control is not None else reusing
        usual = max((float(one.decode.get("threshold") or 0.0) for one in given), default=0.0)
        lower = any(value < usual for value in known)
        generates = any(entry.tokens for entry in reusing)
        if generates and not lower and not group.experiment.foreign:
            sentence = (
                f"{group.name}: work is reused ({counted(len(reusing), 'configuration')}), but none decodes plainly "
                f"at a lower threshold."
            )
            found.append(ABOUT.finding("info", sentence, group, reusing))
    return found
