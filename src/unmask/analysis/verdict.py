"""The recipe's criteria, answered: confirmed, rejected or undecided, with the reason and the intervals.

Speed comes from timing runs only, loss of accuracy from rows paired by sample. Confirming means picking the
best of several candidates, so its intervals are widened for their number (Bonferroni); rejecting needs every
candidate to fail, which no choice can favour, so its intervals are not. A candidate whose figures a guard calls
invalid neither confirms nor rejects anything.

From top to bottom: what is known of each candidate, one candidate against the criteria, what is missing for an answer,
and the verdict.
"""

from collections.abc import Iterable, Iterator
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
from unmask.analysis.words import counted, in_points, join_words, points
from unmask.errors import UnmaskError
from unmask.spec.recipe import SuccessSpec

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

    def described(self) -> str:
        """Figures and intervals in words."""
        speed = "no timing"
        if self.speedup:
            speed = f"{self.speedup.value:.2f}x ({self.speedup.bounds})"
        loss = "no result"
        if self.loss:
            between = f"{in_points(self.loss.interval.low)} to {in_points(self.loss.interval.high)}"
            loss = f"loses {points(self.loss.value)} ({between})"
        return f"{self.configuration} {speed}, {loss}"


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
    """What would confirm the hypothesis."""
    bounds = criteria.confirm
    return f"faster than {bounds.speedup:g}x, losing less than {points(bounds.drop)} on {criteria.task}"


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
    if bounds is None:
        return False
    slow = candidate.speedup is not None and candidate.speedup.high < bounds.speedup
    return slow or (
        candidate.loss is not None and candidate.loss.paired and candidate.loss.interval.low > bounds.drop
    )


def missing(
    candidates: tuple[Candidate, ...], waiting: Iterable[Planned], criteria: SuccessSpec, level: float
) -> Iterator[str]:
    """What it would take to decide, one sentence each."""
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
    over = [
        candidate
        for candidate in hopeful
        if candidate.loss and candidate.loss.paired and candidate.loss.value >= criteria.confirm.drop
    ]
    if over:
        losses = join_words(
            f"{candidate.configuration} ({points(candidate.loss.value)})"
            for candidate in over
            if candidate.loss
        )
        yield f"More rows: so far {losses} lose more than allowed, but not beyond their error."
    for candidate in hopeful:
        if candidate not in over:
            yield from _rows_missing(candidate, criteria, strict)
        yield from _rounds_missing(candidate, criteria)
    if candidates and criteria.reject is None and not hopeful:
        yield "The recipe does not say when to reject; give [success] a reject table."


def _rows_missing(candidate: Candidate, criteria: SuccessSpec, level: float) -> Iterator[str]:
    loss, allowed = candidate.loss, criteria.confirm.drop
    if loss is None:
        yield f"{candidate.configuration} has no result on {criteria.task} beside the control {criteria.control}."
        return
    if not loss.paired:
        yield f"The rows of {candidate.configuration} are not on disk, so its loss is not paired; run it again."
        return
    if loss.corrected.high < allowed:
        return
    changed = careful_discordance(loss.discordant, loss.rows) if loss.discordant is not None else None
    if not changed:
        yield f"{candidate.configuration}: more rows; {loss.rows:,} are too few for {points(allowed)}."
        return
    needed = max(loss.rows + 1, samples_for_margin(min(1.0, allowed - loss.value), changed, level))
    yield (
        f"{candidate.configuration}: about {needed:,} rows, if it loses {points(loss.value)} in truth and "
        f"{changed:.0%} of the rows change ({loss.rows:,} so far)."
    )


def _rounds_missing(candidate: Candidate, criteria: SuccessSpec) -> Iterator[str]:
    speed = candidate.corrected_speedup
    if speed is not None and speed.low <= criteria.confirm.speedup < speed.high:
        left = f"leave {speed.low:.2f}x to {speed.high:.2f}x" if speed.bounded else "give no interval"
        leave = left.replace("leave", "leaves").replace("give", "gives") if speed.rounds == 1 else left
        yield f"{candidate.configuration}: more rounds of the timing run; {counted(speed.rounds, 'round')} {leave}."


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a recipe's question."""

    experiment: str
    answer: Answer
    reason: str
    """A few sentences with figures."""
    candidates: tuple[Candidate, ...]
    missing: tuple[str, ...]
    """What it would take to decide, one sentence each; empty when it is decided."""
    criteria: SuccessSpec
    level: float
    basis: str = ""
    """What was timed and which rows were asked; the reason ends with it."""


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
    basis = _basis(table, experiment, candidates, criteria)

    def answered(answer: Answer, reason: str, needed: tuple[str, ...] = ()) -> Verdict:
        sentences = " ".join(part for part in (reason, basis) if part)
        return Verdict(experiment, answer, sentences, candidates, needed, criteria, level, basis)

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
        *missing(candidates, (*about.missing, *about.retracted), criteria, level),
    )
    reason = f"{_failure(candidates, criteria)[:-1]}, but the figures are not sound." if failed else ""
    return answered("undecided", reason or _open(candidates, good, criteria), needed)


def _basis(table: Table, experiment: str, candidates: tuple[Candidate, ...], criteria: SuccessSpec) -> str:
    """What was timed, and that only a part of the rows was asked."""
    sentences = []
    timed = join_words(candidate.speedup.source for candidate in candidates if candidate.speedup is not None)
    if timed:
        sentences.append(f"Timed: {timed}.")
    group = judged_group(table, experiment, criteria.task)
    if group is not None and group.limit is not None:
        sentences.append(f"Losses are those of {group.name}, not of all rows.")
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


def _success(sound: list[Candidate], criteria: SuccessSpec) -> str:
    best = max(sound, key=lambda candidate: candidate.speedup.value if candidate.speedup else 0.0)
    names = join_words(candidate.configuration for candidate in sound)
    return f"{names}: {goal_of(criteria)}. The fastest: {best.described()}."


def _failure(candidates: tuple[Candidate, ...], criteria: SuccessSpec) -> str:
    bounds = criteria.reject
    limit = f"slower than {bounds.speedup:g}x or loses more than {points(bounds.drop)}" if bounds else "out"
    return f"Every candidate is {limit}: {'; '.join(candidate.described() for candidate in candidates)}."


def _open(candidates: tuple[Candidate, ...], good: list[Candidate], criteria: SuccessSpec) -> str:
    if not candidates:
        return f"No candidate has a result on {criteria.task}."
    if good:
        names = join_words(candidate.configuration for candidate in good)
        return f"{names}: {goal_of(criteria)}, but the figures are not sound."
    hopeful = [candidate for candidate in candidates if could_confirm(candidate, criteria)]
    if not hopeful:
        figures = "; ".join(candidate.described() for candidate in candidates)
        return f"No candidate can still be {goal_of(criteria)}, but not all of them are rejected: {figures}."
    figures = "; ".join(candidate.described() for candidate in hopeful)
    return f"The intervals do not decide whether any candidate is {goal_of(criteria)}: {figures}."


def _doubts(good: list[Candidate], barred: dict[str, str]) -> list[str]:
    if not good:
        return []
    names = {candidate.configuration for candidate in good}
    guards = join_words(guard for name, guard in barred.items() if name in names) or join_words(
        barred.values()
    )
    return [f"What the guards call invalid ({guards}) must be mended first; `unmask check` explains it."]
