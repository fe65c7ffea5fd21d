"""Too few samples for the claim."""

from unmask.analysis.criteria import is_candidate
from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.samples import difference
from unmask.analysis.statistics import (
    Difference,
    assumed_discordance,
    careful_discordance,
    independent_discordance,
    samples_for_margin,
    smallest_margin,
    wilson,
)
from unmask.analysis.words import counted as number
from unmask.analysis.words import percent, points

ABOUT = About(
    id="too-few-samples",
    severity="invalid",
    title="Too few samples for the claim",
    explanation=(
        "A difference can be seen only if it is larger than what chance does to so many rows. Paired comparisons "
        "need rows according to how often two configurations disagree."
    ),
    advice="Raise the limit, or claim nothing about accuracy; `unmask plan` says beforehand how many rows are needed.",
)
USUAL_CLAIM = 0.05
"""Five points, where no criterion says otherwise."""
FEWEST_ROWS = 30
"""With fewer no interval is trusted, however clear it looks."""
HOPELESS = 4.0
"""Times the claimed difference: from here on not even a rough statement is possible."""


def check(table: Table) -> list[Finding]:
    """Compare the smallest loss that the rows can exclude with the one that is claimed; `unmask plan` asks alike."""
    return [finding for group in table.groups() if (finding := _of(group)) is not None]


def _of(group: Group) -> Finding | None:
    counted = [entry for entry in group.entries if entry.rows]
    if not counted:
        return None
    success = group.experiment.success
    judged = success is not None and success.task == group.task
    claim = success.confirm.drop if success is not None and judged and success.confirm.drop else USUAL_CLAIM
    fewest = min(counted, key=lambda entry: entry.rows or 0)
    rows = fewest.rows or 0
    control = group.control or fewest
    changed, told = _discordance(group, control, claim, rows)
    needed = samples_for_margin(claim, changed) if changed else 0
    if needed <= rows:
        return None
    visible = smallest_margin(rows, changed)
    interval = wilson(round(control.value * rows), rows)
    sentence = (
        f"{group.name}: {number(rows, 'row')} {'shows' if rows == 1 else 'show'} no difference below {points(visible)} ({percent(changed, 0)} of "
        f"the rows {told}); {points(claim)} need {needed:,}. The accuracy of {control.configuration} itself is known "
        f"to {percent(interval.low, 0)} to {percent(interval.high, 0)}."
    )
    hopeless = visible >= HOPELESS * claim
    return ABOUT.finding("invalid" if hopeless else "warning", sentence, group, group.entries)


def _discordance(group: Group, control: Entry, claim: float, rows: int) -> tuple[float, str]:
    """How often two configurations disagree: measured where rows are on disk, else as `unmask plan` assumes.

    Imported rows are never paired, so their errors count as independent.

    Comparisons that are decided (their interval excludes the claimed loss) need no more rows; 0 if all are.
    """
    success = group.experiment.success
    pairs: list[Difference] = []
    for entry in group.entries:
        wanted = is_candidate(entry.configuration, success) if success else acts(entry)
        if entry is control or not wanted:
            continue
        pair = difference(control, entry)
        if pair is None or pair.counts is None:
            pairs = []
            break
        pairs.append(pair)
    still_open = [pair for pair in pairs if pair.interval.holds(-claim) or rows < FEWEST_ROWS]
    measured = [pair.counts.discordant for pair in still_open if pair.counts]
    if pairs and not still_open:
        return 0.0, "nothing is open"
    if measured and max(measured) > 0:
        careful = careful_discordance(max(measured), rows)
        if careful == max(measured):
            return careful, "changed between right and wrong, at most"
        return careful, "are taken to change"
    if not control.foreign:
        return max(assumed_discordance(), claim), "are taken to change"
    accuracy = min(max(control.value, claim), 1.0)
    independent = careful_discordance(independent_discordance(accuracy, claim), rows)
    return max(independent, claim), "would change if errors were independent"
