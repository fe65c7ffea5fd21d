"""What an experiment shows, in three sentences for somebody who reads nothing else.

The first says what comes out best, the second which candidates cannot meet the criterion and why, the third whether a
lower threshold alone, which needs no policy, does as well. They are made of the results, whatever these are.
"""

from collections.abc import Sequence

from unmask.analysis.frontier import Point, above_mixture, mixture_at
from unmask.analysis.gains import GAINED, PREDICTED, Gain
from unmask.analysis.losses import Loss
from unmask.analysis.verdict import Candidate, Verdict, could_confirm
from unmask.analysis.words import between, bound_points, in_percent, in_words, percent, span
from unmask.report.document import ExperimentPart, TaskPart
from unmask.spec.recipe import Gained

STEPS = {"sub": "sub-block steps", "block": "full-block steps", "tail": "tail steps"}
"""Kinds of forward on which policies act."""
MOST_NAMED = 4
"""Candidates that a sentence names; of more it tells the number."""


def judged_task(part: ExperimentPart) -> TaskPart | None:
    """The task that the criteria are about; of several limits the one with the most rows."""
    judged = part.verdict
    tasks = [task for task in part.tasks if judged and task.group.task == judged.criteria.task]
    return max(tasks, key=lambda task: max(line.entry.rows or 0 for line in task.lines), default=None)


def lessons(part: ExperimentPart) -> tuple[str, ...]:
    """The three sentences; none where nothing was judged, or where no candidate has a gain and a loss yet."""
    judged, task = part.verdict, judged_task(part)
    known = (
        [candidate for candidate in judged.candidates if candidate.gain and candidate.loss] if judged else []
    )
    if judged is None or task is None or part.experiment.foreign or not known:
        return ()
    best = foremost(judged, known)
    return _outcome(judged, best), _ruled_out(judged, known, task), _thresholds(judged, best, task)


def foremost(judged: Verdict, known: Sequence[Candidate]) -> Candidate:
    """The confirmed candidate that gains most; without one, whoever gains most within the loss allowed."""
    for name in judged.confirmed:
        return next(candidate for candidate in known if candidate.configuration == name)
    within = [
        candidate
        for candidate in known
        if candidate.loss and candidate.loss.value < judged.criteria.confirm.drop
    ]
    if within:
        return max(within, key=lambda candidate: candidate.gain.value if candidate.gain else 0.0)
    return min(known, key=lambda candidate: candidate.loss.value if candidate.loss else 1.0)


def _outcome(judged: Verdict, best: Candidate) -> str:
    nearest = "" if judged.answer == "confirmed" else "comes nearest: it "
    return f"{best.configuration} {nearest}{_gained(best.gain, judged)}, {_lost(best.loss)}."


def _gained(gain: Gain | None, judged: Verdict) -> str:
    if gain is None:
        return "has an unknown gain"
    control, value = judged.criteria.control, gain.value
    if gain.by == "work":
        less = f" ({_times(value)} less)" if value > 1 else ""
        return f"takes {percent(1 / value, 0)} of the counted work of {control}{less}"
    if gain.by == "speed":
        return f"is {_times(value)} as fast as {control}"
    if gain.by in PREDICTED:
        return f"should be {_times(value)} as fast as {control} on the {PREDICTED[gain.by]} (predicted, not timed)"
    return f"has {_times(value)} as many tokens a forward as {control}"


def _times(gain: float) -> str:
    return f"{gain:.2f}x"


def _lost(loss: Loss | None) -> str:
    """A loss in words; what is gained reads as that."""
    if loss is None:
        return "with an unknown loss"
    if loss.equal:
        return "and must give the same answers"
    bounds = span(loss.interval.low, loss.interval.high)
    return f"with a loss of {in_percent(loss.value)} points ({bounds}) on {loss.rows:,} rows"


def _ruled_out(judged: Verdict, known: Sequence[Candidate], task: TaskPart) -> str:
    """Who cannot meet the criterion any more, for want of a gain or for too much of a loss."""
    criteria, wanted = judged.criteria, judged.criteria.confirm.least_gain
    out = [candidate for candidate in known if not could_confirm(candidate, criteria)]
    if not out:
        return "No candidate is ruled out."
    weak = [candidate for candidate in out if candidate.gain and candidate.gain.high <= wanted]
    lossy = [candidate for candidate in out if candidate not in weak]
    reasons = [_too_weak(weak, judged, task)] if weak else []
    if lossy:
        losses = between((100 * candidate.loss.value for candidate in lossy if candidate.loss), "{:.1f}")
        allowed = bound_points(criteria.confirm.drop)
        reasons.append(f"{_cannot(lossy, judged)} stay within {allowed} (a loss of {losses} points)")
    return f"{'; '.join(reasons)}."


def _too_weak(weak: Sequence[Candidate], judged: Verdict, task: TaskPart) -> str:
    """Who gains too little, and on which share of the work they act at all."""
    wanted, by = judged.criteria.confirm.least_gain, judged.criteria.by
    reached = between((candidate.gain.value for candidate in weak if candidate.gain), "{:.2f}x")
    said = f"{_cannot(weak, judged)} reach {wanted:g}x by {GAINED[by]} ({reached})"
    names = {candidate.configuration for candidate in weak}
    kinds = {
        kind
        for line in task.lines
        if line.name in names
        for kind, work in line.by_kind.items()
        if work["branch_rows_skipped"]
    }
    control = next((line for line in task.lines if line.is_control), None)
    if control is None or not kinds or kinds >= {kind for kind in STEPS if kind in control.by_kind}:
        return said
    rows = {kind: work["branch_rows"] for kind, work in control.by_kind.items()}
    share = sum(rows.get(kind, 0) for kind in kinds) / sum(rows.values())
    where = " and ".join(STEPS.get(kind, kind) for kind in sorted(kinds))
    act = "it acts" if len(weak) == 1 else "they act"
    return f"{said}: {act} on {where} only, which hold {percent(share, 0)} of the layer work"


def _cannot(some: Sequence[Candidate], judged: Verdict) -> str:
    """Who, with the verb: a few by their names, more by their number."""
    names, number = [candidate.named for candidate in some], len(judged.candidates)
    if len(names) == number > 1:
        return f"None of the {in_words(number)} candidates can"
    if len(names) > MOST_NAMED:
        return f"{in_words(len(names)).capitalize()} of the {in_words(number)} candidates cannot"
    return f"{' and '.join(part for part in (', '.join(names[:-1]), names[-1]) if part)} cannot"


def _thresholds(judged: Verdict, best: Candidate, task: TaskPart) -> str:
    """Whether plain decoding at a lower threshold does as well as the best candidate."""
    by: Gained = judged.criteria.by
    if task.comparisons.sequential is not None and task.comparisons.sequential.stopped:
        return (
            f"Whether a lower threshold alone does as well as {best.configuration} is open: runs ended early."
        )
    plane = {point.configuration: point for point in task.planes.get(by, ())}
    own, control = plane.get(best.configuration), plane.get(judged.criteria.control)
    usual = control.threshold if control else None
    lower = [point for point in plane.values() if usual and point.threshold and point.threshold < usual]
    if own is not None and not own.acts:
        return f"{own.configuration} is plain decoding: what every policy has to beat."
    if own is None or control is None or not lower:
        return f"Whether a lower threshold alone would do as well as {best.configuration} was not tried."
    if own.gain <= control.gain:
        return f"{own.configuration} gains nothing that a lower threshold would have to match."
    better = [point for point in lower if point.gain >= own.gain and point.accuracy >= own.accuracy]
    if better:
        return f"Plain decoding does at least as well on these rows with a lower threshold: {_placed(better[0])}."
    mixture = mixture_at(own.gain, [control, *lower])
    level = task.comparisons.level
    above = above_mixture(mixture, task.group, own.configuration, level) if mixture else None
    if mixture is None or above is None:
        return _beyond_thresholds(own, lower, by)
    value, interval = above
    low, high = sorted((abs(interval.low), abs(interval.high)))
    bounds = f"({span(low, high)})"
    mixed = f"{mixture.slower} and {mixture.faster}, mixed to the same {GAINED[by]},"
    if interval.low > 0:
        return f"A lower threshold does worse: {mixed} would lose {in_percent(value)} points more {bounds}."
    if interval.high < 0:
        return f"A lower threshold does better: {mixed} would lose {in_percent(-value)} points less {bounds}."
    return f"A lower threshold may do as well: {mixed} cannot be told apart from {own.configuration} on these rows."


def _beyond_thresholds(own: Point, lower: Sequence[Point], by: Gained) -> str:
    nearest = max(lower, key=lambda point: point.gain)
    worse = nearest.accuracy < own.accuracy and nearest.gain < own.gain
    said = (
        "A lower threshold does worse"
        if worse
        else f"No threshold that was tried gains as much by {GAINED[by]}"
    )
    return f"{said}: {_placed(nearest)}."


def _placed(point: Point) -> str:
    return f"{point.configuration} reaches {_times(point.gain)} {_lost(point.loss)}"
