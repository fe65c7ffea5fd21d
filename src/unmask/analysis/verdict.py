"""The recipe's criteria, answered: confirmed, rejected or undecided, with the reason and the intervals.

Speed comes from timing runs only, loss of accuracy from rows paired by sample. Confirming means picking the
best of several candidates, so its intervals are widened for their number (Bonferroni); rejecting needs every
candidate to fail, which no choice can favour, so its intervals are not. A candidate whose figures a guard calls
invalid neither confirms nor rejects anything.

From top to bottom: what is known of each candidate, one candidate against the criteria, what is missing for an answer,
and the verdict.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unmask.analysis.guards import Finding, run_guards
from unmask.analysis.samples import difference
from unmask.analysis.speeds import Speedup, speedup_of
from unmask.analysis.statistics import (
    Interval,
    bonferroni_level,
    careful_discordance,
    samples_for_margin,
    unpaired_interval,
)
from unmask.analysis.table import ConfigurationResult, Planned, Table, TaskResults
from unmask.analysis.words import counted, join_words, percent, points
from unmask.errors import UnmaskError
from unmask.spec.recipe import Bounds, SuccessSpec

Answer = Literal["confirmed", "rejected", "undecided"]
LEVEL = 0.95
JUDGED_BY_INTERVALS = ("too-few-samples", "beyond-ceiling")
"""Guards that warn of what the intervals show anyway."""
NOT_PAIRED = (
    "Imported speeds are totals of accuracy runs; a timing run is needed.",
    "Imported accuracies come without rows, so differences cannot be paired.",
)


@dataclass(frozen=True, slots=True)
class Loss:
    """The control's accuracy minus the candidate's."""

    value: float
    interval: Interval
    corrected: Interval
    """The same at the level corrected for the number of candidates."""
    rows: int
    discordant: float | None
    """Share of the rows on which the two disagree; None where rows are not paired."""
    paired: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's case."""

    configuration: str
    speedup: Speedup | None
    corrected_speedup: Speedup | None
    loss: Loss | None


def candidates_of(
    table: Table, experiment: str, criteria: SuccessSpec, level: float = 0.95
) -> tuple[Candidate, ...]:
    """Every configuration that the criteria name, those without a result too.

    Speeds are those of timing runs on the criteria's own task: on another task a policy gains something else.
    """
    group = judged_group(table, experiment, criteria.task)
    table = replace(table, timings=tuple(timing for timing in table.timings if timing.task == criteria.task))
    control = group.entry(criteria.control) if group else None
    entries = {entry.configuration: entry for entry in group.entries} if group else {}
    timed = [timing.configuration for timing in table.timings_of(experiment)]
    about = table.experiment(experiment)
    planned = [run.configuration for run in (*about.missing, *about.retracted) if run.configuration]
    names = [name for name in dict.fromkeys([*entries, *timed, *planned]) if criteria.is_candidate(name)]
    strict = bonferroni_level(level, len(names))
    return tuple(
        Candidate(
            configuration=name,
            speedup=speedup_of(table, experiment, name, criteria.control, criteria.task, level),
            corrected_speedup=speedup_of(table, experiment, name, criteria.control, criteria.task, strict),
            loss=loss_of(control, entries[name], level, strict) if control and name in entries else None,
        )
        for name in names
    )


def judged_group(table: Table, experiment: str, task: str) -> TaskResults | None:
    """The task's entries; of several limits the one with the most rows."""
    groups = [group for group in table.groups() if (group.experiment.name, group.task) == (experiment, task)]
    return max(groups, key=lambda group: max(entry.rows or 0 for entry in group.entries), default=None)


def loss_of(
    control: ConfigurationResult,
    entry: ConfigurationResult,
    level: float = 0.95,
    corrected: float | None = None,
) -> Loss | None:
    """How much a configuration loses, paired by row where rows are on disk."""
    strict = level if corrected is None else corrected
    pair, wide_pair = (difference(control, entry, each) for each in (level, strict))
    if pair is None or wide_pair is None:
        if not (control.rows and entry.rows):
            return None
        plain, wide = (
            unpaired_interval(entry.value, entry.rows, control.value, control.rows, each)
            for each in (level, strict)
        )
        return Loss(control.value - entry.value, plain, wide, entry.rows, None, paired=False)
    return Loss(
        value=-pair.value,
        interval=_turned(pair.interval),
        corrected=_turned(wide_pair.interval),
        rows=pair.count,
        discordant=pair.counts.discordant if pair.counts else None,
        paired=True,
    )


def _turned(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low, interval.level, interval.method)


def goal_of(criteria: SuccessSpec) -> str:
    """What a candidate must do to confirm the hypothesis."""
    bounds = criteria.confirm
    return f"faster than {bounds.speedup:g}x with a loss below {points(bounds.drop)} on {criteria.task}"


def confirms(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate is certainly faster than asked for and certainly loses less than allowed."""
    bounds = criteria.confirm
    if candidate.corrected_speedup is None or candidate.loss is None or not candidate.loss.paired:
        return False
    return candidate.corrected_speedup.low > bounds.speedup and candidate.loss.corrected.high < bounds.drop


def could_confirm(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether more data could still make a candidate meet the criterion."""
    bounds = criteria.confirm
    fast = candidate.corrected_speedup is None or candidate.corrected_speedup.high > bounds.speedup
    return fast and (candidate.loss is None or candidate.loss.corrected.low < bounds.drop)


def rejects(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate is certainly too slow, or certainly loses too much."""
    bounds = criteria.reject
    return bounds is not None and (_too_slow(candidate, bounds) or _loses_too_much(candidate, bounds))


def _too_slow(candidate: Candidate, bounds: Bounds) -> bool:
    return candidate.speedup is not None and candidate.speedup.high < bounds.speedup


def _loses_too_much(candidate: Candidate, bounds: Bounds) -> bool:
    return candidate.loss is not None and candidate.loss.paired and candidate.loss.interval.low > bounds.drop


def _withdrawn(retracted: Sequence[Planned]) -> Iterator[str]:
    if retracted:
        yield f"{counted(len(retracted), 'retracted result')}: {join_words(str(run) for run in retracted)}."


def missing(
    candidates: tuple[Candidate, ...], waiting: Iterable[Planned], criteria: SuccessSpec, level: float
) -> Iterator[str]:
    """What it would take to decide, one sentence each; candidates that lack the same are named together."""
    unfinished = [str(run) for run in waiting]
    if unfinished:
        yield f"{counted(len(unfinished), 'planned run')} without a result: {join_words(unfinished)}."
    untimed = [candidate.configuration for candidate in candidates if candidate.speedup is None]
    if untimed:
        yield (
            f"No timing run on {criteria.task} holds {join_words(untimed)} beside the control {criteria.control}."
        )
    strict = bonferroni_level(level, len(candidates))
    hopeful = [candidate for candidate in candidates if could_confirm(candidate, criteria)]
    lacking: dict[str, list[str]] = {}
    for candidate in hopeful:
        for need in (*_rows_missing(candidate, criteria, strict), *_rounds_missing(candidate, criteria)):
            lacking.setdefault(need, []).append(candidate.configuration)
    for need, names in lacking.items():
        yield f"{join_words(names)}: {need}"
    if candidates and criteria.reject is None and not hopeful:
        yield "The recipe does not say when to reject; give [success] a reject table."


def _rows_missing(candidate: Candidate, criteria: SuccessSpec, level: float) -> Iterator[str]:
    loss, allowed = candidate.loss, criteria.confirm.drop
    if loss is None:
        yield f"a result on {criteria.task} beside the control {criteria.control}."
    elif not loss.paired:
        yield "the rows of its run are not on disk, so the loss is not paired; run it again."
    elif loss.value >= allowed:
        yield "more rows; the loss so far is more than allowed, but not beyond its error."
    elif loss.corrected.high >= allowed:
        changed = careful_discordance(loss.discordant, loss.rows) if loss.discordant is not None else None
        if not changed:
            yield f"more rows; {loss.rows:,} are too few for {points(allowed)}."
            return
        needed = max(loss.rows + 1, samples_for_margin(min(1.0, allowed - loss.value), changed, level))
        yield (
            f"about {needed:,} rows instead of {loss.rows:,}, if the true loss is the measured one and "
            f"{percent(changed, 0)} of the rows change."
        )


def _rounds_missing(candidate: Candidate, criteria: SuccessSpec) -> Iterator[str]:
    speed = candidate.corrected_speedup
    if speed is None or not speed.low <= criteria.confirm.speedup < speed.high:
        return
    rounds = counted(speed.rounds, "round")
    if speed.bounded:
        yield (
            f"more rounds of the timing run; {rounds} so far, with an interval of {speed.low:.2f}x to "
            f"{speed.high:.2f}x."
        )
    else:
        yield f"more rounds of the timing run; {rounds} so far, too few for an interval."


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a recipe's question."""

    experiment: str
    answer: Answer
    reason: str
    """Two or three sentences that name candidates; their figures are in the table of the task."""
    candidates: tuple[Candidate, ...]
    missing: tuple[str, ...]
    """What it would take to decide, one sentence each; empty when it is decided."""
    criteria: SuccessSpec
    level: float
    basis: str = ""
    """What was timed, which rows were asked, and at which level the intervals hold."""


def verdict(
    table: Table, experiment: str, level: float = LEVEL, findings: Iterable[Finding] | None = None
) -> Verdict:
    """Evaluate the criteria of an experiment; `findings` spares running the guards again."""
    about = table.experiment(experiment)
    criteria = about.success
    if criteria is None:
        raise UnmaskError(f"The experiment {experiment} has no criteria; give its recipe a [success] table.")
    candidates = candidates_of(table, experiment, criteria, level)
    if about.foreign:
        reason = f"Imported figures cannot decide whether any candidate is {goal_of(criteria)}."
        return Verdict(experiment, "undecided", reason, candidates, NOT_PAIRED, criteria, level)
    barred = _barred(run_guards(table) if findings is None else findings, experiment, criteria)

    def answered(answer: Answer, reason: str, needed: tuple[str, ...] = ()) -> Verdict:
        judged = Verdict(experiment, answer, reason, candidates, needed, criteria, level)
        return replace(judged, basis=_basis(table, judged))

    good = [candidate for candidate in candidates if confirms(candidate, criteria)]
    sound = [
        candidate for candidate in good if not {candidate.configuration, criteria.control} & barred.keys()
    ]
    if sound:
        return answered("confirmed", _success(sound, criteria))
    failed = bool(candidates) and all(rejects(candidate, criteria) for candidate in candidates)
    concerned = {criteria.control, *(candidate.configuration for candidate in candidates)} & barred.keys()
    if failed and not concerned:
        return answered("rejected", _failure(candidates, criteria))
    doubtful = list(candidates) if failed else good
    needed = (
        *_doubts(doubtful, barred),
        *_withdrawn(about.retracted),
        *missing(candidates, about.missing, criteria, level),
    )
    if doubtful:
        reason = _failure(candidates, criteria) if failed else _success(good, criteria)
        return answered("undecided", f"{reason} But a guard calls the figures invalid.", needed)
    return answered("undecided", _open(candidates, criteria), needed)


def _basis(table: Table, judged: Verdict) -> str:
    """What was timed, that only a part of the rows was asked, and how sure the intervals are."""
    sentences = []
    timed = join_words(candidate.speedup.source for candidate in judged.candidates if candidate.speedup)
    if timed:
        sentences.append(f"Speeds were measured on {timed}.")
    group = judged_group(table, judged.experiment, judged.criteria.task)
    if group is not None and group.limit is not None:
        sentences.append(f"Losses are those of {group.name}, not of all rows.")
    if len(judged.candidates) > 1 and judged.answer != "rejected":
        sentences.append(
            f"To confirm, the intervals of all {len(judged.candidates)} candidates must hold together at "
            f"{percent(judged.level, 0)}, so they are wider than those of the table."
        )
    return " ".join(sentences)


def _barred(findings: Iterable[Finding], experiment: str, criteria: SuccessSpec) -> dict[str, str]:
    """Configurations whose figures a guard calls invalid, and which guard."""
    return {
        name: finding.guard
        for finding in findings
        if finding.severity == "invalid"
        and finding.guard not in JUDGED_BY_INTERVALS
        and finding.experiment == experiment
        and finding.task in (None, criteria.task)
        for name in finding.configurations
    }


def _success(good: list[Candidate], criteria: SuccessSpec) -> str:
    names = join_words(candidate.configuration for candidate in good)
    if len(good) == 1:
        return f"{names} is {goal_of(criteria)}."
    best = max(good, key=lambda candidate: candidate.speedup.value if candidate.speedup else 0.0)
    return f"{names} are {goal_of(criteria)}. The fastest of them is {best.configuration}."


def _failure(candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    """Why every candidate is rejected, each named once."""
    bounds = criteria.reject
    if bounds is None:
        return "Every candidate is rejected."
    slow = [candidate.configuration for candidate in candidates if _too_slow(candidate, bounds)]
    lossy = [candidate.configuration for candidate in candidates if candidate.configuration not in slow]
    reasons = [f"slower than {bounds.speedup:g}x: {join_words(slow)}"] if slow else []
    reasons += [f"a loss above {points(bounds.drop)}: {join_words(lossy)}"] if lossy else []
    who = "The one candidate is" if len(candidates) == 1 else f"All {len(candidates)} candidates are"
    return f"{who} rejected on {criteria.task} ({'; '.join(reasons)})."


def _open(candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    """Who can still confirm, and who is out."""
    if not candidates:
        return f"No candidate has a result on {criteria.task}."
    hopeful = [candidate.configuration for candidate in candidates if could_confirm(candidate, criteria)]
    out = [candidate.configuration for candidate in candidates if candidate.configuration not in hopeful]
    if hopeful:
        who = hopeful[0] if len(hopeful) == 1 else f"any of {join_words(hopeful)}"
        reason = f"The intervals do not show yet whether {who} is {goal_of(criteria)}."
        others = "The other candidate" if len(out) == 1 else f"The other {len(out)} candidates"
        return f"{reason} {others} ({join_words(out)}) can no longer reach that." if out else reason
    rejected = [candidate.configuration for candidate in candidates if rejects(candidate, criteria)]
    who = "The one candidate cannot" if len(out) == 1 else f"None of the {len(out)} candidates can"
    reason = f"{who} be {goal_of(criteria)} any more."
    if rejected:
        verb = "is" if len(rejected) == 1 else "are"
        return f"{reason} {len(rejected)} of them ({join_words(rejected)}) {verb} rejected outright."
    return f"{reason} {'It is not' if len(out) == 1 else 'None of them is'} rejected outright."


def _doubts(good: list[Candidate], barred: dict[str, str]) -> list[str]:
    if not good:
        return []
    names = {candidate.configuration for candidate in good}
    guards = join_words(guard for name, guard in barred.items() if name in names) or join_words(
        barred.values()
    )
    return [f"What the guards call invalid ({guards}) must be mended first; `unmask check` explains it."]
