"""The recipe's criteria, answered: confirmed, rejected, not confirmed or undecided, with the reason and the intervals.

Speed comes from timing runs only, work and tokens a forward are counted, loss of accuracy comes from rows paired by
sample. All intervals are those of the task's table, at the level at which all its comparisons hold together. Figures
that a guard calls invalid neither confirm nor reject anything.

From top to bottom: what is known of each candidate, one candidate against the criteria, what is missing for an answer,
and the verdict.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unmask.analysis.anytime import METHOD
from unmask.analysis.gains import GAINED, PREDICTED, Gain, counted_gain, exact_gain, speedup_of, timed_gain
from unmask.analysis.guards import Finding, run_guards
from unmask.analysis.likeness import outcome_class
from unmask.analysis.losses import Comparisons, Loss, anytime_loss, comparisons_of, loss_of
from unmask.analysis.statistics import careful_discordance, samples_for_margin
from unmask.analysis.stopping import StoppingSweep
from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, Table, TaskResults
from unmask.analysis.words import bound_points, counted, in_words, join_words, percent, points
from unmask.errors import UnmaskError
from unmask.spec.recipe import SuccessSpec

Answer = Literal["confirmed", "rejected", "not confirmed", "undecided"]
NOT_PAIRED = (
    "Imported speeds are totals of accuracy runs; a timing run is needed.",
    "Imported accuracies come without rows, so differences cannot be paired.",
)
MEANINGS = {
    "speed": "",
    "work": (
        "Counted work: the operations of the control divided by those of the candidate, over the same rows. They are "
        "counted, not timed, so they have no interval."
    ),
    "tokens_a_forward": (
        "Tokens a forward: accepted tokens over all forwards but prefills, the candidate's divided by the "
        "control's. They are counted, not timed, so they have no interval."
    ),
} | {
    by: (
        f"Speed predicted for the {card} at batch 1, from counted bytes, arithmetic and launches: the control's "
        "seconds divided by the candidate's, over the same rows. Nothing was timed there, so it has no interval; "
        "`unmask gpu-check` on such a card tells how far the prediction holds."
    )
    for by, card in PREDICTED.items()
}
"""What a counted gain is; where a speed comes from is said with its timing run."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's case."""

    configuration: str
    gain: Gain | None
    """By what the criteria name."""
    loss: Loss | None
    has_result: bool
    """Whether its own result is there, so that only the control's can be missing."""
    also: tuple[str, ...] = ()
    """Candidates that are equal to it by construction: several names, one behaviour."""

    @property
    def named(self) -> str:
        """With all of its names."""
        return " = ".join((self.configuration, *self.also))


def candidates_of(table: Table, experiment: str, criteria: SuccessSpec) -> tuple[Candidate, ...]:
    """Every configuration that the criteria name, those without a result too.

    What is equal by construction counts once. Speeds are those of timing runs on the criteria's own task: on another
    task a policy gains something else.
    """
    group = judged_group(table, experiment, criteria.task)
    sequential = _sequential(table.experiment(experiment), criteria)
    table = replace(table, timings=tuple(timing for timing in table.timings if timing.task == criteria.task))
    control = group.entry(criteria.control) if group else None
    entries = {entry.configuration: entry for entry in group.entries} if group else {}
    timed = [timing.configuration for timing in table.timings_of(experiment)]
    about = table.experiment(experiment)
    planned = [run.configuration for run in (*about.missing, *about.retracted) if run.configuration]
    ended = sequential.stopped if sequential else {}
    every = dict.fromkeys([*(sequential.runs if sequential else []), *entries, *timed, *planned])
    behaviours = _behaviours(
        [name for name in every if criteria.is_candidate(name)], about, entries, criteria
    )
    names = list(behaviours)
    comparisons = _comparisons(table, group, sequential, len(names))

    def gain(name: str) -> Gain | None:
        if sequential and criteria.by != "speed" and {name, criteria.control} & ended.keys():
            return exact_gain(criteria.by, sequential.gain(criteria.by, name))
        if criteria.by == "speed":
            level = comparisons.level
            return timed_gain(speedup_of(table, experiment, name, criteria.control, criteria.task, level))
        return counted_gain(criteria.by, control, entries[name]) if control and name in entries else None

    return tuple(
        Candidate(
            configuration=name,
            gain=gain(name),
            loss=_loss(control, entries.get(name), name, comparisons),
            has_result=name in entries or name in ended,
            also=behaviours[name],
        )
        for name in names
    )


def _behaviours(
    names: Sequence[str],
    about: AnalysedExperiment,
    entries: Mapping[str, ConfigurationResult],
    criteria: SuccessSpec,
) -> dict[str, tuple[str, ...]]:
    """By the first name of each behaviour: its other names."""
    here = [each for each in about.stand_ins if each.task == criteria.task]
    stand_ins = {name: each.configuration for each in here for name in each.others}
    groups: dict[object, list[str]] = {}
    for name in names:
        entry = entries.get(name)
        key = stand_ins.get(name, name) if entry is None else outcome_class(entry)
        groups.setdefault(key, []).append(name)
    return {group[0]: tuple(group[1:]) for group in groups.values()}


def _sequential(about: AnalysedExperiment, criteria: SuccessSpec) -> StoppingSweep | None:
    """The runs that the criteria are about, where they may end as soon as they are decided."""
    known = about.sequential
    return known if known and (known.task, known.control) == (criteria.task, criteria.control) else None


def _comparisons(
    table: Table, group: TaskResults | None, sequential: StoppingSweep | None, candidates: int
) -> Comparisons:
    if sequential is not None:
        return Comparisons(sequential.terms.comparisons, sequential=sequential)
    return comparisons_of(table, group) if group else Comparisons(candidates)


def _loss(
    control: ConfigurationResult | None,
    entry: ConfigurationResult | None,
    name: str,
    comparisons: Comparisons,
) -> Loss | None:
    if control is not None and entry is not None:
        return loss_of(control, entry, comparisons)
    return anytime_loss(comparisons.sequential, name) if comparisons.sequential else None


def judged_group(table: Table, experiment: str, task: str) -> TaskResults | None:
    """The task's entries; of several limits the one with the most rows."""
    groups = [group for group in table.groups() if (group.experiment.name, group.task) == (experiment, task)]
    return max(groups, key=lambda group: max(entry.rows or 0 for entry in group.entries), default=None)


def goal_of(criteria: SuccessSpec) -> str:
    """What a candidate must reach to confirm the hypothesis."""
    bounds = criteria.confirm
    return (
        f"{bounds.least_gain:g}x by {GAINED[criteria.by]} within {bound_points(bounds.drop)} of {criteria.control} "
        f"on {criteria.task}"
    )


def confirms(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate certainly gains more than asked for and certainly loses less than allowed."""
    bounds = criteria.confirm
    if candidate.gain is None or candidate.loss is None or not candidate.loss.paired:
        return False
    return candidate.gain.low > bounds.least_gain and candidate.loss.interval.high < bounds.drop


def could_confirm(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether more data could still make a candidate meet the criterion."""
    bounds = criteria.confirm
    enough = candidate.gain is None or candidate.gain.high > bounds.least_gain
    return enough and (candidate.loss is None or candidate.loss.interval.low < bounds.drop)


def rejects(candidate: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate certainly gains too little, or certainly loses too much."""
    return _gains_too_little(candidate, criteria) or _loses_too_much(candidate, criteria)


def _gains_too_little(candidate: Candidate, criteria: SuccessSpec) -> bool:
    bounds, gain = criteria.reject, candidate.gain
    return bounds is not None and gain is not None and gain.high < bounds.least_gain


def _loses_too_much(candidate: Candidate, criteria: SuccessSpec) -> bool:
    bounds, loss = criteria.reject, candidate.loss
    return bounds is not None and loss is not None and loss.paired and loss.interval.low > bounds.drop


def _answer(candidates: Sequence[Candidate], criteria: SuccessSpec) -> Answer:
    if any(confirms(candidate, criteria) for candidate in candidates):
        return "confirmed"
    if not candidates:
        return "undecided"
    if all(rejects(candidate, criteria) for candidate in candidates):
        return "rejected"
    hopeful = any(could_confirm(candidate, criteria) for candidate in candidates)
    return "undecided" if hopeful else "not confirmed"


def _missing(judged: "Verdict", about: AnalysedExperiment, group: TaskResults | None) -> Iterator[str]:
    """What it would take to decide, one sentence each; candidates that lack the same are named together."""
    candidates, criteria = judged.candidates, judged.criteria
    if about.retracted:
        retracted = join_words(str(run) for run in about.retracted)
        yield f"{counted(len(about.retracted), 'retracted result')}: {retracted}."
    if about.missing:
        unfinished = join_words(str(run) for run in about.missing)
        yield f"{counted(len(about.missing), 'planned run')} without a result: {unfinished}."
    ended = about.sequential.stopped if about.sequential else {}
    if group is not None and group.entry(criteria.control) is None and criteria.control not in ended:
        yield f"The control {criteria.control} has no result on {criteria.task} to compare with."
    untimed = [candidate.named for candidate in candidates if candidate.gain is None]
    if untimed and criteria.by == "speed":
        yield (
            f"No timing run on {criteria.task} holds {join_words(untimed)} beside the control {criteria.control}."
        )
    lacking: dict[str, list[str]] = {}
    for candidate in candidates:
        if could_confirm(candidate, criteria):
            for need in (*_rows_missing(candidate, criteria), *_gain_missing(candidate, criteria)):
                lacking.setdefault(need, []).append(candidate.named)
    for need, names in lacking.items():
        yield f"{join_words(names)}: {need}"


def _rows_missing(candidate: Candidate, criteria: SuccessSpec) -> Iterator[str]:
    loss, allowed = candidate.loss, criteria.confirm.drop
    if loss is None:
        if not candidate.has_result:
            yield f"a result on {criteria.task} beside the control {criteria.control}."
    elif not loss.paired:
        yield "the rows of its run are not on disk, so the loss is not paired; run it again."
    elif loss.interval.method == METHOD:
        yield f"more rows; {loss.rows:,} do not decide it for an interval that holds at every look."
    elif loss.value >= allowed:
        yield "more rows; the loss so far is more than allowed, but not beyond its error."
    elif loss.interval.high >= allowed:
        changed = careful_discordance(loss.discordant, loss.rows) if loss.discordant is not None else None
        if not changed:
            yield f"more rows; {loss.rows:,} are too few for {points(allowed)}."
            return
        margin, level = min(1.0, allowed - loss.value), loss.interval.level
        needed = max(loss.rows + 1, samples_for_margin(margin, changed, level))
        yield (
            f"about {needed:,} rows instead of {loss.rows:,}, if the true loss is the measured one and "
            f"{percent(changed, 0)} of the rows change."
        )


def _gain_missing(candidate: Candidate, criteria: SuccessSpec) -> Iterator[str]:
    gain, by = candidate.gain, criteria.by
    if gain is None:
        if by != "speed" and candidate.loss is not None:
            yield (
                f"its result or that of {criteria.control} counts no {GAINED[by]}; `success.by` must name another gain."
            )
        return
    speed = gain.speedup
    if speed is None or not speed.low <= criteria.confirm.least_gain < speed.high:
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
    basis: str = ""
    """What was timed or counted, which rows were asked, and at which level the intervals hold."""
    confirmed: tuple[str, ...] = ()
    """Candidates that meet the criteria by figures that no guard calls invalid, the one that gains most first."""


def verdict(table: Table, experiment: str, findings: Iterable[Finding] | None = None) -> Verdict:
    """Evaluate the criteria of an experiment; `findings` spares running the guards again."""
    about = table.experiment(experiment)
    criteria = about.success
    if criteria is None:
        raise UnmaskError(f"The experiment {experiment} has no criteria; give its recipe a [success] table.")
    candidates = candidates_of(table, experiment, criteria)
    if about.foreign:
        reason = f"Imported figures cannot decide whether any candidate reaches {goal_of(criteria)}."
        return Verdict(experiment, "undecided", reason, candidates, NOT_PAIRED, criteria)
    spoiled = _spoiled(run_guards(table) if findings is None else findings, experiment, criteria)
    sound = [_sound(candidate, criteria, spoiled) for candidate in candidates]
    answer, seeming = _answer(sound, criteria), _answer(candidates, criteria)
    doubtful = answer == "undecided" != seeming
    reason = _reason(seeming, candidates, criteria) if doubtful else _reason(answer, sound, criteria)
    judged = Verdict(experiment, answer, reason, candidates, (), criteria)
    judged = replace(judged, basis=_basis(table, judged), confirmed=tuple(_confirmed(sound, criteria)))
    if answer != "undecided":
        return judged
    needed = tuple(_missing(judged, about, judged_group(table, experiment, criteria.task)))
    if doubtful:
        guards = join_words(sorted(guard for _, _, guard in spoiled))
        mend = f"What the guards call invalid ({guards}) must be mended first; `unmask check` explains it."
        return replace(
            judged, reason=f"{reason} But a guard calls the figures invalid.", missing=(mend, *needed)
        )
    return replace(judged, missing=needed)


def _confirmed(sound: Sequence[Candidate], criteria: SuccessSpec) -> Iterator[str]:
    good = [candidate for candidate in sound if confirms(candidate, criteria)]
    for candidate in sorted(good, key=lambda one: -(one.gain.value if one.gain else 0.0)):
        yield candidate.configuration


Spoiled = set[tuple[str, str, str]]
"""A configuration, which of its figures cannot be used, and the guard that says so."""


def _spoiled(findings: Iterable[Finding], experiment: str, criteria: SuccessSpec) -> Spoiled:
    return {
        (name, figure, finding.guard)
        for finding in findings
        if finding.experiment == experiment and finding.task in (None, criteria.task)
        for name in finding.configurations
        if name == criteria.control or criteria.is_candidate(name)
        for figure in finding.spoils
        if figure in ("loss", criteria.by)
    }


def _sound(candidate: Candidate, criteria: SuccessSpec, spoiled: Spoiled) -> Candidate:
    """A candidate without the figures that a guard calls invalid, the control's figures included."""
    names = (candidate.configuration, *candidate.also, criteria.control)
    figures = {figure for name, figure, _ in spoiled if name in names}
    if criteria.by in figures:
        candidate = replace(candidate, gain=None)
    return replace(candidate, loss=None) if "loss" in figures else candidate


def _basis(table: Table, judged: Verdict) -> str:
    """What was timed or counted, that only a part of the rows was asked, and how sure the intervals are."""
    sentences = [MEANINGS[judged.criteria.by]]
    gains = [candidate.gain for candidate in judged.candidates if candidate.gain]
    timed = join_words(gain.speedup.source for gain in gains if gain.speedup)
    if timed:
        sentences.append(f"Speeds were measured on {timed}.")
    group = judged_group(table, judged.experiment, judged.criteria.task)
    if group is not None and group.limit is not None:
        sentences.append(f"Losses are those of {group.name}, not of all rows.")
    sequential = _sequential(table.experiment(judged.experiment), judged.criteria)
    if sequential is not None:
        sentences.append(f"The verdict goes by {_comparisons(table, group, sequential, 0)}.")
        ends = [f"{name} ({end.rows:,} of {end.of:,})" for name, end in sequential.stopped.items()]
        sentences += [f"Ended before the last row: {join_words(ends)}."] if ends else []
    elif group is not None and len(judged.candidates) > 1:
        sentences.append(f"The verdict goes by the table's {comparisons_of(table, group)}.")
    return " ".join(sentence for sentence in sentences if sentence)


def _reason(answer: Answer, candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    if answer == "confirmed":
        return _success([one for one in candidates if confirms(one, criteria)], criteria)
    if answer == "rejected":
        return _failure(candidates, criteria)
    return _out_of_reach(candidates, criteria) if answer == "not confirmed" else _open(candidates, criteria)


def _success(good: Sequence[Candidate], criteria: SuccessSpec) -> str:
    names = join_words(candidate.named for candidate in good)
    if len(good) == 1:
        return f"{names} reaches {goal_of(criteria)}."
    best = max(good, key=lambda candidate: candidate.gain.value if candidate.gain else 0.0)
    return f"{names} reach {goal_of(criteria)}. The best of them by {GAINED[criteria.by]} is {best.named}."


def _failure(candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    """Why every candidate is rejected, each named once."""
    bounds = criteria.reject
    if bounds is None:
        return "Every candidate is rejected."
    weak = [candidate.named for candidate in candidates if _gains_too_little(candidate, criteria)]
    lossy = [candidate.named for candidate in candidates if candidate.named not in weak]
    reasons = [f"below {bounds.least_gain:g}x by {GAINED[criteria.by]}: {join_words(weak)}"] if weak else []
    reasons += [f"a loss above {bound_points(bounds.drop)}: {join_words(lossy)}"] if lossy else []
    who = (
        "The one candidate is" if len(candidates) == 1 else f"All {in_words(len(candidates))} candidates are"
    )
    return f"{who} rejected on {criteria.task} ({'; '.join(reasons)})."


def _out_of_reach(candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    """That nobody can confirm any more, and who is rejected outright."""
    alone = len(candidates) == 1
    who = (
        f"The one candidate, {candidates[0].named}, cannot"
        if alone
        else f"None of the {in_words(len(candidates))} candidates can"
    )
    reason = f"{who} reach {goal_of(criteria)} any more."
    rejected = [candidate.named for candidate in candidates if rejects(candidate, criteria)]
    if criteria.reject is None:
        return reason
    if not rejected:
        return f"{reason} {'It is not' if alone else 'None of them is'} rejected outright."
    number, verb = in_words(len(rejected)).capitalize(), "is" if len(rejected) == 1 else "are"
    return f"{reason} {number} of them ({join_words(rejected)}) {verb} rejected outright."


def _open(candidates: Sequence[Candidate], criteria: SuccessSpec) -> str:
    """Who can still confirm, and who is out."""
    if not candidates:
        return f"No candidate has a result on {criteria.task}."
    hopeful = [candidate.named for candidate in candidates if could_confirm(candidate, criteria)]
    out = [candidate.named for candidate in candidates if candidate.named not in hopeful]
    who = hopeful[0] if len(hopeful) == 1 else f"any of {join_words(hopeful)}"
    reason = f"The figures do not show yet whether {who} reaches {goal_of(criteria)}."
    others = "The other candidate" if len(out) == 1 else f"The other {in_words(len(out))} candidates"
    return f"{reason} {others} ({join_words(out)}) can no longer reach that." if out else reason
