"""One candidate against the criteria, and what is missing for an answer."""

from collections.abc import Iterable, Iterator

from unmask.analysis.candidates import Candidate
from unmask.analysis.records import Planned
from unmask.analysis.statistics import bonferroni_level, careful_discordance, samples_for_margin
from unmask.analysis.words import counted, listed, points
from unmask.spec.recipe import SuccessSpec


def confirms(one: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate is certainly faster than asked for and certainly loses less than allowed."""
    bounds = criteria.confirm
    if one.corrected_speedup is None or one.loss is None or not one.loss.paired:
        return False
    return one.corrected_speedup.low > bounds.speedup and one.loss.corrected.high < bounds.drop


def could_confirm(one: Candidate, criteria: SuccessSpec) -> bool:
    """Whether more data could still make a candidate meet the criterion."""
    bounds = criteria.confirm
    fast = one.corrected_speedup is None or one.corrected_speedup.high > bounds.speedup
    return fast and (one.loss is None or one.loss.corrected.low < bounds.drop)


def rejects(one: Candidate, criteria: SuccessSpec) -> bool:
    """Whether a candidate is certainly too slow, or certainly loses too much."""
    bounds = criteria.reject
    if bounds is None:
        return False
    slow = one.speedup is not None and one.speedup.high < bounds.speedup
    return slow or (one.loss is not None and one.loss.paired and one.loss.interval.low > bounds.drop)


def missing(
    found: tuple[Candidate, ...], waiting: Iterable[Planned], criteria: SuccessSpec, level: float
) -> Iterator[str]:
    """What it would take to decide, one sentence each."""
    unfinished = [str(run) for run in waiting]
    if unfinished:
        yield f"{counted(len(unfinished), 'planned run')} without a result: {listed(unfinished)}."
    untimed = [one.configuration for one in found if one.speedup is None]
    if untimed:
        yield (
            f"No timing run on {criteria.task} holds {listed(untimed)} beside the control {criteria.control}."
        )
    strict = bonferroni_level(level, len(found))
    hopeful = [one for one in found if could_confirm(one, criteria)]
    over = [
        one for one in hopeful if one.loss and one.loss.paired and one.loss.value >= criteria.confirm.drop
    ]
    if over:
        told = listed(f"{one.configuration} ({points(one.loss.value)})" for one in over if one.loss)
        yield f"More rows: so far {told} lose more than allowed, but not beyond their error."
    for one in hopeful:
        if one not in over:
            yield from _rows_missing(one, criteria, strict)
        yield from _rounds_missing(one, criteria)
    if found and criteria.reject is None and not hopeful:
        yield "The recipe does not say when to reject; give [success] a reject table."


def _rows_missing(one: Candidate, criteria: SuccessSpec, level: float) -> Iterator[str]:
    loss, allowed = one.loss, criteria.confirm.drop
    if loss is None:
        yield f"{one.configuration} has no result on {criteria.task} beside the control {criteria.control}."
        return
    if not loss.paired:
        yield f"The rows of {one.configuration} are not on disk, so its loss is not paired; run it again."
        return
    if loss.corrected.high < allowed:
        return
    changed = careful_discordance(loss.discordant, loss.rows) if loss.discordant is not None else None
    if not changed:
        yield f"{one.configuration}: more rows; {loss.rows:,} are too few for {points(allowed)}."
        return
    needed = max(loss.rows + 1, samples_for_margin(min(1.0, allowed - loss.value), changed, level))
    yield (
        f"{one.configuration}: about {needed:,} rows, if it loses {points(loss.value)} in truth and "
        f"{changed:.0%} of the rows change ({loss.rows:,} so far)."
    )


def _rounds_missing(one: Candidate, criteria: SuccessSpec) -> Iterator[str]:
    speed = one.corrected_speedup
    if speed is not None and speed.low <= criteria.confirm.speedup < speed.high:
        left = f"leave {speed.low:.2f}x to {speed.high:.2f}x" if speed.bounded else "give no interval"
        leave = left.replace("leave", "leaves").replace("give", "gives") if speed.rounds == 1 else left
        yield f"{one.configuration}: more rounds of the timing run; {counted(speed.rounds, 'round')} {leave}."
