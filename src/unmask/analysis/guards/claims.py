"""Guards over what is claimed: criteria beyond the ceiling, too few rows, subsets within their error.

Knows criteria, ceilings and the rows of results; whether the figures are sound is asked in the other files.
"""

from itertools import combinations

from unmask.analysis.ceilings import Bound, bound_of
from unmask.analysis.guards.finding import Finding, guard
from unmask.analysis.likeness import acts, behaviour, must_agree, spec_of, subset_axis, threshold
from unmask.analysis.losses import Comparisons, comparisons_of, loss_of
from unmask.analysis.samples import difference
from unmask.analysis.statistics import (
    Interval,
    assumed_discordance,
    bonferroni_level,
    careful_discordance,
    independent_discordance,
    samples_for_margin,
    smallest_margin,
    unpaired_interval,
)
from unmask.analysis.table import ConfigurationResult, Table, TaskResults
from unmask.analysis.words import counted, join_words, percent, points
from unmask.spec.recipe import SuccessSpec


@guard(
    severity="invalid",
    title="The success criterion lies beyond the ceiling",
    explanation=(
        "Skipping a part of the work cannot gain more than that part: what still runs, and the steps that may not "
        "reuse, bound the speed-up. A criterion above the bound is decided before anything runs."
    ),
    advice="Skip more (full-block steps too, more layers, fewer rows) or ask for less; `unmask ceiling` knows.",
    spoils=(),
)
def beyond_ceiling(table: Table) -> list[Finding]:
    """Compare the criteria with the ceilings of their candidates."""
    found = []
    for group in table.groups():
        success = group.experiment.success
        if success is None:
            found += _bounds_of_imports(group)
        elif group.task == success.task and success.by == "speed":
            found += _criterion_beyond(group, success)
    return found


def _bounds(
    group: TaskResults, entries: list[ConfigurationResult]
) -> list[tuple[ConfigurationResult, Bound]]:
    pairs = [(entry, bound_of(entry, group.control)) for entry in entries]
    return [(entry, bound) for entry, bound in pairs if bound is not None]


def _criterion_beyond(group: TaskResults, success: SuccessSpec) -> list[Finding]:
    control = group.entry(success.control)
    if control is None:
        return []
    # Other decode settings take other steps, so nothing bounds them.
    named = [entry for entry in group.entries if success.is_candidate(entry.configuration)]
    entries = [entry for entry in named if dict(entry.decode) == dict(control.decode)]
    wanted = success.confirm.least_gain
    known = _bounds(group, entries)
    short = [(entry, bound) for entry, bound in known if bound.speedup <= wanted]
    if not short:
        return []
    names, figures = join_words(entry.configuration for entry, _ in short), _bound_figures(short)
    everyone = len(short) == len(named)
    close = "so no run can confirm the hypothesis" if everyone else "so they cannot confirm the hypothesis"
    sentence = (
        f"{group.name}: the criterion asks for more than {wanted:g}x, but at equal steps {names} can reach {figures} "
        f"at most ({short[0][1].accounting}{_roofline(short[0][1])}), {close}."
    )
    return [
        beyond_ceiling.finding(
            "invalid" if everyone else "warning", sentence, group, [entry for entry, _ in short]
        )
    ]


def _bounds_of_imports(group: TaskResults) -> list[Finding]:
    """Without criteria: what a claim about imported figures would have to stay below."""
    entries = [entry for entry in group.entries if entry.foreign and acts(entry) and entry.tokens]
    known = _bounds(group, entries)
    if not known:
        return []
    sentence = (
        f"{group.name}: at equal steps no speed-up above {_bound_figures(known)} is possible ({known[0][1].accounting}"
        f"{_roofline(known[0][1])}); a criterion above that cannot be met."
    )
    return [beyond_ceiling.finding("info", sentence, group, [entry for entry, _ in known])]


def _bound_figures(known: list[tuple[ConfigurationResult, Bound]]) -> str:
    by_period: dict[str, float] = {}
    for entry, bound in known:
        spec = spec_of(entry)
        name = (spec.short_name if spec else None) or entry.configuration
        by_period[name] = max(bound.speedup, by_period.get(name, 0.0))
    return ", ".join(f"{speedup:.2f}x ({name})" for name, speedup in by_period.items())


def _roofline(bound: Bound) -> str:
    return f"; roofline of {bound.device}" if bound.device else ""


USUAL_CLAIM = 0.05
"""Five points, where no criterion says otherwise."""
FEWEST_ROWS = 30
"""With fewer no interval is trusted, however clear it looks."""
HOPELESS = 4.0
"""Times the claimed difference: from here on not even a rough statement is possible."""


@guard(
    severity="invalid",
    title="The task has too few rows for the difference that is claimed",
    explanation=(
        "A loss can be excluded only if it is larger than what chance does to so many rows. How many rows a paired "
        "comparison needs follows from how often two configurations disagree."
    ),
    advice="Raise the limit, or claim nothing about accuracy; `unmask plan` says beforehand how many rows are needed.",
    spoils=(),
)
def too_few_samples(table: Table) -> list[Finding]:
    """Compare the smallest loss that the rows can exclude with the one that is claimed; `unmask plan` asks alike."""
    return [finding for group in table.groups() if (finding := _too_few(table, group)) is not None]


def _too_few(table: Table, group: TaskResults) -> Finding | None:
    with_rows = [entry for entry in group.entries if entry.rows]
    if not with_rows:
        return None
    success = group.experiment.success
    judged = success is not None and success.task == group.task
    claim = success.confirm.drop if success is not None and judged and success.confirm.drop else USUAL_CLAIM
    fewest = min(with_rows, key=lambda entry: entry.rows or 0)
    rows = fewest.rows or 0
    control = group.control or fewest
    comparisons = comparisons_of(table, group)
    changed, assumption = _discordance(group, control, comparisons, claim)
    needed = samples_for_margin(claim, changed, comparisons.level) if changed else 0
    if needed <= rows:
        return None
    visible = smallest_margin(rows, changed, comparisons.level)
    sentence = (
        f"{group.name}: with {counted(rows, 'row')} only losses of {points(visible)} or more can be excluded; to "
        f"exclude {points(claim)} takes {needed:,} rows ({percent(changed, 0)} of the rows {assumption})."
    )
    hopeless = judged and visible >= HOPELESS * claim
    return too_few_samples.finding("invalid" if hopeless else "warning", sentence, group, group.entries)


def _discordance(
    group: TaskResults, control: ConfigurationResult, comparisons: Comparisons, claim: float
) -> tuple[float, str]:
    """How often two configurations disagree: measured where rows are on disk, else as `unmask plan` assumes.

    Imported rows are never paired, so their errors count as independent. Comparisons that are decided (their interval
    excludes the claimed loss) need no more rows, nor do configurations that must be equal; 0 if there is nothing else.
    """
    success = group.experiment.success
    rows = min(entry.rows for entry in group.entries if entry.rows)
    others = [entry for entry in group.entries if entry is not control]
    free = [entry for entry in others if not must_agree(control, entry)]
    if others and not free:
        return 0.0, "nothing can differ"
    wanted = [
        entry for entry in free if (success.is_candidate(entry.configuration) if success else acts(entry))
    ]
    losses = [loss_of(control, entry, comparisons) for entry in wanted]
    known = [loss for loss in losses if loss is not None and loss.discordant is not None]
    if wanted and len(known) == len(wanted):
        open_shares = [
            loss.discordant or 0.0 for loss in known if loss.interval.holds(claim) or rows < FEWEST_ROWS
        ]
        if not open_shares:
            return 0.0, "nothing is open"
        if max(open_shares) > 0:
            careful = careful_discordance(max(open_shares), rows)
            if careful == max(open_shares):
                return careful, "changed between right and wrong, at most"
            return careful, "are taken to change"
    if not control.foreign:
        return max(assumed_discordance(), claim), "are taken to change"
    accuracy = min(max(control.value, claim), 1.0)
    independent = careful_discordance(independent_discordance(accuracy, claim), rows)
    return max(independent, claim), "would change if errors were independent"


@guard(
    severity="warning",
    title="Subsets of layers differ by less than their error",
    explanation=(
        "Putting back a layer's output cuts the residual stream: the logits are those of the last computed step, "
        "whatever layers are named, so under `output` the subset axis measures nothing. Under other units it measures "
        "something only if the differences exceed their error."
    ),
    advice="Report one figure for each k, or use a unit that lets new tokens through (residual, attention, mlp).",
)
def subsets_within_error(table: Table) -> list[Finding]:
    """Compare the subsets of every policy that names layers."""
    return [finding for group in table.groups() for finding in _axes_within_error(group)]


def _axes_within_error(group: TaskResults) -> list[Finding]:
    findings = []
    for entries in subset_axis(group.entries):
        by_construction = len({behaviour(entry) for entry in entries}) == 1
        pairs = list(combinations(entries, 2))
        intervals = [_interval(first, second, bonferroni_level(0.95, len(pairs))) for first, second in pairs]
        if any(interval is not None and not interval.holds(0.0) for interval in intervals):
            continue
        if None in intervals and not by_construction:
            continue
        if len({entry.value for entry in entries}) == 1 and not all(entry.answers for entry in entries):
            continue
        findings.append(_subset_finding(group, entries, intervals, by_construction))
    return findings


def _subset_finding(
    group: TaskResults,
    entries: list[ConfigurationResult],
    intervals: list[Interval | None],
    by_construction: bool,
) -> Finding:
    values = [entry.value for entry in entries]
    apart = max(values) - min(values)
    names = join_words(entry.configuration for entry in entries)
    halves = [(interval.high - interval.low) / 2 for interval in intervals if interval is not None]
    error = f", less than their error of {points(max(halves))}" if halves and apart else ""
    unit = entries[0].policy.get("unit")
    under = f"under `{unit}` " if unit else ""
    reason = f"; {under}they are equal by construction" if by_construction else ""
    sentence = f"{group.name}: {names} differ by {points(apart)} at most{error}{reason}."
    if not apart:
        sentence = f"{group.name}: {names} are equal{reason}."
    reported_apart = by_construction and apart > 0
    advice = None if by_construction else "Report one figure for each k until more rows show a difference."
    return subsets_within_error.finding(
        "warning" if reported_apart else "info", sentence, group, entries, advice
    )


def _interval(first: ConfigurationResult, second: ConfigurationResult, level: float) -> Interval | None:
    """Paired by row where rows are on disk, else from the two accuracies alone."""
    if first.answers and first.answers == second.answers:
        return None
    paired = difference(first, second, level)
    if paired is not None:
        return paired.interval
    if first.rows and second.rows:
        return unpaired_interval(first.value, first.rows, second.value, second.rows, level)
    return None


@guard(
    severity="info",
    title="The threshold curve is missing",
    explanation=(
        "Lowering the threshold trades accuracy for speed without any policy. A policy is worth something only "
        "where it beats that curve."
    ),
    advice="Add plain configurations with lower thresholds, for instance decode = { threshold = 0.8 }.",
)
def no_threshold_curve(table: Table) -> list[Finding]:
    """Look for a lower threshold than the control's beside the policies."""
    findings = []
    for group in table.groups():
        reusing = [entry for entry in group.entries if acts(entry)]
        known = {value for entry in group.entries if (value := threshold(entry)) is not None}
        given = [group.control] if group.control is not None else reusing
        usual = max((float(entry.decode.get("threshold") or 0.0) for entry in given), default=0.0)
        lower = any(value < usual for value in known)
        generates = any(entry.tokens for entry in reusing)
        if generates and not lower and not group.experiment.foreign:
            sentence = (
                f"{group.name}: {counted(len(reusing), 'configuration')} {'reuses' if len(reusing) == 1 else 'reuse'} "
                "work, but none decodes plainly at a lower threshold."
            )
            findings.append(no_threshold_curve.finding("info", sentence, group, reusing))
    return findings
