"""Guards over answers and accuracies: results that are equal, differ, stay or break off where they must not.

Knows results and their rows on disk. Speeds are in `speed.py`, criteria and claims in `claims.py`.
"""

from collections.abc import Sequence
from itertools import combinations

from unmask.analysis.guards.finding import Finding, Severity, guard
from unmask.analysis.likeness import acts, alike, behaviour, control_of, likeness, reuse_fraction
from unmask.analysis.samples import damage, disagreement, outcomes
from unmask.analysis.table import ConfigurationResult, ConfigurationTiming, Measured, Table, TaskResults
from unmask.analysis.words import between, join_words, percent
from unmask.store.result import Effect

FEWEST_ALIKE = 3
"""Results without a digest of their answers must agree this often: two may agree by chance."""


@guard(
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
def identical_results(table: Table) -> list[Finding]:
    """Look for groups that answer alike although their policies differ."""
    return [finding for group in table.groups() for finding in (*_by_digest(group), *_by_value(group))]


def _by_digest(group: TaskResults) -> list[Finding]:
    findings = []
    digests: dict[str, list[ConfigurationResult]] = {}
    for entry in group.entries:
        if entry.answers:
            digests.setdefault(entry.answers, []).append(entry)
    for entries in digests.values():
        # A policy that skipped nothing is reported as such; of the others, unlike ones must not answer alike.
        at_work = [entry for entry in entries if not acts(entry) or reuse_fraction(entry) != 0]
        unlike = {likeness(entry) for entry in at_work}
        if len(unlike) > 1 and any(acts(entry) for entry in at_work):
            saved = [percent(reuse_fraction(entry) or 0, 0) for entry in at_work if acts(entry)]
            findings.append(
                identical_results.finding(
                    "warning",
                    f"{group.name}: {join_words(entry.configuration for entry in at_work)} gave the same "
                    f"{_row_count(at_work[0])} answers, word for word, although {join_words(saved)} of the layer "
                    f"work was skipped.",
                    group,
                    at_work,
                    "The skip may be free on this task; compare steps and samples before believing it.",
                )
            )
    return findings


def _by_value(group: TaskResults) -> list[Finding]:
    plain = [entry for entry in group.entries if entry.answers is None]
    values: dict[tuple[object, ...], list[ConfigurationResult]] = {}
    for entry in plain:
        values.setdefault((entry.value, entry.stderr, entry.tokens), []).append(entry)
    findings = []
    for entries in values.values():
        unlike = {behaviour(entry) for entry in entries}
        if len(entries) < FEWEST_ALIKE or len(unlike) < 2:
            continue
        if not any(acts(first) or acts(second) for first, second in combinations(entries, 2)):
            continue
        findings.append(
            identical_results.finding(
                "invalid",
                f"{group.name}: {len(entries)} results of {len(unlike)} configurations that differ in what "
                f"they reuse are all exactly {entries[0].value!r} ({percent(entries[0].value)}, "
                f"{_row_count(entries[0])} rows).",
                group,
                entries,
            )
        )
    return findings


def _row_count(entry: ConfigurationResult) -> str:
    return "an unknown number of" if entry.rows is None else f"{entry.rows:,}"


@guard(
    severity="invalid",
    title="Nothing was skipped",
    explanation="The ledger counts every forward; it shows that the policy left out no work on this task.",
    advice="Take the configuration out of this task's tables, or give the policy steps on which it may reuse.",
)
def nothing_skipped(table: Table) -> list[Finding]:
    """Look for ledgers without any reuse."""
    idle: dict[tuple[str, str, str | None], list[Measured]] = {}
    results: list[Measured] = [*table.entries, *table.timings]
    for result in results:
        if not acts(result) or reuse_fraction(result) != 0:
            continue
        reasons = [
            part.inactive for part in result.effect.values() if isinstance(part, Effect) and part.inactive
        ]
        where = "timing on " if isinstance(result, ConfigurationTiming) else ""
        key = (result.experiment, f"{where}{result.task}", reasons[0] if reasons else None)
        idle.setdefault(key, []).append(result)
    return [
        nothing_skipped.finding(
            "warning" if reason else "invalid",
            f"{place}: {_names(concerned)} skipped no layer work at all"
            f"{f': {reason}' if reason else ', and the record does not say why'}.",
            concerned[0],
            concerned,
        )
        for (_, place, reason), concerned in idle.items()
    ]


def _names(results: Sequence[Measured]) -> str:
    return join_words(dict.fromkeys(result.configuration for result in results))


@guard(
    severity="invalid",
    title="Figures that cannot all be true",
    explanation=(
        "The same answers to the same rows have one accuracy. If two configurations answered alike, or must decode "
        "alike and wrote the same number of tokens, and their accuracies differ, one figure is wrong. So is one of the "
        "two if an accuracy is not the mean of its own rows."
    ),
    advice="Score the answers of both again; the usual causes are a stale file and a scorer that is not repeatable.",
)
def contradiction(table: Table) -> list[Finding]:
    """Look for equal answers with different values."""
    findings = []
    for group in table.groups():
        for entry in group.entries:
            contrary = disagreement(entry)
            if contrary is not None:
                findings.append(
                    contradiction.finding("invalid", f"{group.name}: {contrary}.", group, [entry])
                )
        named: set[str] = set()
        for digest, entries in _sorted_by(group.entries, "answers").items():
            if len({entry.value for entry in entries}) > 1:
                findings.append(_contradicting(group, entries, f"gave the same answers ({str(digest)[:12]})"))
                named |= {entry.configuration for entry in entries}
        for entries in alike(group.entries):
            for tokens, same in _sorted_by(entries, "tokens").items():
                digests = {entry.answers for entry in same if entry.answers}
                names = {entry.configuration for entry in same}
                if len(digests) < 2 and len({entry.value for entry in same}) > 1 and not names <= named:
                    what = f"must decode alike and wrote the same {tokens:,} tokens"
                    findings.append(_contradicting(group, same, what))
    return findings


def _sorted_by(
    entries: "tuple[ConfigurationResult, ...] | list[ConfigurationResult]", field: str
) -> dict[object, list[ConfigurationResult]]:
    by_value: dict[object, list[ConfigurationResult]] = {}
    for entry in entries:
        if getattr(entry, field) is not None:
            by_value.setdefault(getattr(entry, field), []).append(entry)
    return by_value


def _contradicting(group: TaskResults, entries: list[ConfigurationResult], what: str) -> Finding:
    values = between([entry.value * 100 for entry in entries], "{:.2f}")
    names = join_words(entry.configuration for entry in entries)
    return contradiction.finding(
        "invalid", f"{group.name}: {names} {what}, but their accuracies are {values} %.", group, entries
    )


@guard(
    severity="invalid",
    title="The rows behind a result are gone or damaged",
    explanation=(
        "A difference is paired by row, so the rows of both results must be on disk, all of them, and be the same. "
        "An accuracy without its rows cannot be checked."
    ),
    advice="Run the configuration again with `unmask run RECIPE --force NAME`.",
)
def damaged_rows(table: Table) -> list[Finding]:
    """Look at the file of every result, and at the rows it shares with the control."""
    return [
        finding
        for group in table.groups()
        for entry in group.entries
        for finding in _row_faults(group, entry)
    ]


def _row_faults(group: TaskResults, entry: ConfigurationResult) -> list[Finding]:
    wrong = damage(entry)
    if wrong is not None:
        gone = entry.samples is not None and not entry.samples.exists()
        sentence = f"{group.name}: {entry.configuration} has no sound rows: {wrong}"
        return [damaged_rows.finding("warning" if gone else "invalid", sentence, group, [entry])]
    control = control_of(group)
    if control is None or control is entry or control.samples is None or entry.samples is None:
        return []
    before, after = outcomes(control), outcomes(entry)
    if before is None or after is None or before.keys() == after.keys():
        return []
    shared = len(before.keys() & after.keys())
    sentence = (
        f"{group.name}: {entry.configuration} shares only {shared} of {len(after)} rows with "
        f"{control.configuration}."
    )
    return [damaged_rows.finding("invalid", sentence, group, [entry])]


MANY = 4
"""Configurations from which chance is no explanation."""
FEWEST_ROWS = 100
"""In fewer rows equal accuracies are common."""


@guard(
    severity="invalid",
    title="The accuracy stays to the digit although the answers changed",
    explanation=(
        "When answers change, some become right and some wrong; that the sums cancel exactly happens now and then, "
        "but not for many configurations at once. Then the accuracies belong to other answers than the ones on record."
    ),
    advice="Compute the accuracies again from the answers that are there.",
)
def stale_accuracy(table: Table) -> list[Finding]:
    """Compare repetitions of the same configurations, and different configurations of one group."""
    return [*_repeated(table), *(one for group in table.groups() for one in _within(group))]


def _repeated(table: Table) -> list[Finding]:
    """The same configurations in two experiments: all accuracies equal, answers changed."""
    findings = []
    for first, second in combinations(table.groups(), 2):
        comparable = (first.task, first.limit) == (second.task, second.limit)
        if not comparable or first.experiment.name == second.experiment.name:
            continue
        pairs = [
            (entry, again)
            for entry in first.entries
            for again in second.entries
            if entry.configuration == again.configuration and likeness(entry) == likeness(again)
        ]
        changed = [pair for pair in pairs if _answers_differ(*pair)]
        if len(changed) < 2 or any(entry.value != again.value for entry, again in pairs):
            continue
        (entry, again) = changed[0]
        tokens = (
            f" ({entry.configuration}: {entry.tokens:,} then {again.tokens:,} tokens)" if entry.tokens else ""
        )
        sentence = (
            f"{first.name}: all {len(pairs)} accuracies of {first.experiment.name} and {second.experiment.name} are "
            f"equal to the digit, although the answers of {len(changed)} configurations changed{tokens}."
        )
        severity: Severity = "invalid" if len(changed) >= MANY else "warning"
        findings.append(stale_accuracy.finding(severity, sentence, second, [pair[1] for pair in changed]))
    return findings


def _within(group: TaskResults) -> list[Finding]:
    """Unlike configurations of one group with one value and different answers."""
    values: dict[float, list[ConfigurationResult]] = {}
    for entry in group.entries:
        values.setdefault(entry.value, []).append(entry)
    findings = []
    for value, entries in values.items():
        differing = _one_of_each(entries)
        if len(differing) < MANY or not any(acts(entry) for entry in differing):
            continue
        if 0 < value < 1 and min(entry.rows or 0 for entry in differing) >= FEWEST_ROWS:
            sentence = (
                f"{group.name}: {join_words(entry.configuration for entry in differing)} all answered differently "
                f"and have exactly the same accuracy, {percent(value)}."
            )
            findings.append(stale_accuracy.finding("warning", sentence, group, differing))
    return findings


def _one_of_each(entries: list[ConfigurationResult]) -> list[ConfigurationResult]:
    """One entry of every set of answers, and of every way of decoding."""
    by_answers: dict[object, ConfigurationResult] = {}
    for entry in entries:
        mark = entry.answers or entry.tokens
        if mark is not None:
            by_answers.setdefault(mark, entry)
    by_way = {likeness(entry): entry for entry in by_answers.values()}
    return list(by_way.values())


def _answers_differ(one: ConfigurationResult, other: ConfigurationResult) -> bool:
    if one.answers and other.answers:
        return one.answers != other.answers
    return one.tokens is not None and other.tokens is not None and one.tokens != other.tokens


LONGER, MUCH_LONGER, SHORTER = 1.5, 2.0, 0.5
"""Tokens a row, as multiples of the control's."""
CUT, MOSTLY_CUT = 0.1, 0.5
"""Share of answers ended by the length limit, beyond the control's share."""


@guard(
    severity="invalid",
    title="Far more or far fewer tokens than the control",
    explanation=(
        "A model that has lost the thread repeats itself until the length limit, or stops at once. Repeated tokens are "
        "decoded quickly, so tokens/s rises while the answers are worthless."
    ),
    advice="Look at some answers; compare seconds a request instead of tokens/s, or drop the configuration.",
    spoils=("speed", "tokens_a_forward"),
)
def collapse(table: Table) -> list[Finding]:
    """Compare lengths and ends of answers with the control's."""
    findings = []
    for group in table.groups():
        control = control_of(group)
        if control is None:
            continue
        others = [entry for entry in group.entries if entry is not control]
        findings += _lengths(group, control, others) + _ends(group, control, others)
    return findings


def _lengths(
    group: TaskResults, control: ConfigurationResult, entries: list[ConfigurationResult]
) -> list[Finding]:
    known = [entry for entry in entries if control.tokens and entry.tokens and control.rows and entry.rows]
    before = (control.tokens or 0) / (control.rows or 1)
    by_severity: dict[Severity, list[tuple[ConfigurationResult, float]]] = {}
    for entry in known:
        after = (entry.tokens or 0) / (entry.rows or 1)
        if not SHORTER <= after / before <= LONGER:
            severity: Severity = "invalid" if after / before >= MUCH_LONGER else "warning"
            by_severity.setdefault(severity, []).append((entry, after))
    findings = []
    for severity, lengths in by_severity.items():
        concerned = [entry for entry, _ in lengths]
        sentence = (
            f"{group.name}: {_names(concerned)} wrote {join_words(f'{after:.0f}' for _, after in lengths)} tokens a "
            f"row, {control.configuration} {before:.0f} "
            f"({join_words(f'{after / before:.2f}x' for _, after in lengths)}): "
            f"{'its' if len(lengths) == 1 else 'their'} tokens/s cannot be compared."
        )
        findings.append(collapse.finding(severity, sentence, group, concerned))
    return findings


def _ends(
    group: TaskResults, control: ConfigurationResult, entries: list[ConfigurationResult]
) -> list[Finding]:
    before = _cut_share(control)
    by_severity: dict[Severity, list[tuple[ConfigurationResult, float]]] = {}
    for entry in entries:
        after = _cut_share(entry)
        if before is not None and after is not None and after - before >= CUT:
            severity: Severity = "invalid" if after - before >= MOSTLY_CUT else "warning"
            by_severity.setdefault(severity, []).append((entry, after))
    findings = []
    for severity, shares in by_severity.items():
        concerned = [entry for entry, _ in shares]
        sentence = (
            f"{group.name}: {join_words(percent(after, 0) for _, after in shares)} of the answers of "
            f"{_names(concerned)} were cut off at the length limit, {percent(before or 0.0, 0)} of those of "
            f"{control.configuration}."
        )
        findings.append(collapse.finding(severity, sentence, group, concerned))
    return findings


def _cut_share(entry: ConfigurationResult) -> float | None:
    """Share of a configuration's answers that the length limit ended; a row may have several."""
    generated = entry.effect.get("generation")
    answers = generated.requests if generated and generated.requests else entry.rows
    return None if entry.truncated is None or not answers else entry.truncated / answers


@guard(
    severity="warning",
    title="Answers cut off by the length limit",
    explanation=(
        "An answer that reaches max_new_tokens before its end is scored as it stands, and mostly counts as wrong. "
        "An accuracy over such answers measures the limit rather than the model."
    ),
    advice="Raise max_new_tokens until only a few percent of the answers are cut off, and run the task again.",
)
def cut_off(table: Table) -> list[Finding]:
    """Look for many answers ended by the limit; where only a policy's are, `collapse` says so."""
    findings = []
    for group in table.groups():
        control = control_of(group)
        usual = _cut_share(control) if control else None
        by_limit: dict[object, list[tuple[ConfigurationResult, float]]] = {}
        for entry in group.entries:
            share = _cut_share(entry)
            if share is not None and share >= CUT and (usual is None or share - usual < CUT):
                by_limit.setdefault(entry.decode.get("max_new_tokens"), []).append((entry, share))
        for limit, shares in by_limit.items():
            concerned = [entry for entry, _ in shares]
            most = [
                percent(share, 0) for share in sorted({min(s for _, s in shares), max(s for _, s in shares)})
            ]
            sentence = (
                f"{group.name}: {' to '.join(dict.fromkeys(most))} of the answers of {_names(concerned)} were cut off "
                f"{'at the length limit' if limit is None else f'at max_new_tokens = {limit}'}."
            )
            findings.append(cut_off.finding("warning", sentence, group, concerned))
    return findings
