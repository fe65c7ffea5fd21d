"""The recipe's criteria, answered: confirmed, rejected or undecided, with the reason and the intervals.

Speed comes from timing runs only, loss of accuracy from rows paired by sample. Confirming means picking the
best of several candidates, so its intervals are widened for their number (Bonferroni); rejecting needs every
candidate to fail, which no choice can favour, so its intervals are not. A candidate whose figures a guard calls
invalid neither confirms nor rejects anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from unmask.analysis.candidates import Candidate, candidates_of, judged_group
from unmask.analysis.criteria import asked
from unmask.analysis.guards import Finding, run_guards
from unmask.analysis.judgement import confirms, could_confirm, missing, rejects
from unmask.analysis.records import Table
from unmask.analysis.words import listed, points
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
    found = candidates_of(table, experiment, criteria, level)
    if about.foreign:
        reason = f"Imported figures cannot decide whether any candidate is {asked(criteria)}."
        return Verdict(experiment, "undecided", reason, found, NOT_PAIRED, criteria, level)
    told = run_guards(table) if findings is None else findings
    barred = _barred(told, experiment, criteria)
    basis = _basis(table, experiment, found, criteria)

    def answered(answer: Answer, reason: str, needed: tuple[str, ...] = ()) -> Verdict:
        told = " ".join(part for part in (reason, basis) if part)
        return Verdict(experiment, answer, told, found, needed, criteria, level, basis)

    good = [one for one in found if confirms(one, criteria)]
    sound = [one for one in good if not {one.configuration, criteria.control} & barred.keys()]
    if sound:
        return answered("confirmed", _success(sound, criteria))
    failed = bool(found) and all(rejects(one, criteria) for one in found)
    concerned = {criteria.control, *(one.configuration for one in found)} & barred.keys()
    if failed and not concerned:
        return answered("rejected", _failure(found, criteria))
    doubtful = list(found) if failed else good
    needed = (
        *_doubts(doubtful, barred),
        *missing(found, (*about.missing, *about.retracted), criteria, level),
    )
    reason = f"{_failure(found, criteria)[:-1]}, but the figures are not sound." if failed else ""
    return answered("undecided", reason or _open(found, good, criteria), needed)


def _basis(table: Table, experiment: str, found: tuple[Candidate, ...], criteria: SuccessSpec) -> str:
    """What was timed, and that only a part of the rows was asked."""
    told = []
    timed = listed(one.speedup.source for one in found if one.speedup is not None)
    if timed:
        told.append(f"Timed: {timed}.")
    group = judged_group(table, experiment, criteria.task)
    if group is not None and group.limit is not None:
        told.append(f"Losses are those of {group.name}, not of all rows.")
    return " ".join(told)


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
    best = max(sound, key=lambda one: one.speedup.value if one.speedup else 0.0)
    names = listed(one.configuration for one in sound)
    return f"{names}: {asked(criteria)}. The fastest: {best.told()}."


def _failure(found: tuple[Candidate, ...], criteria: SuccessSpec) -> str:
    bounds = criteria.reject
    limit = f"slower than {bounds.speedup:g}x or loses more than {points(bounds.drop)}" if bounds else "out"
    return f"Every candidate is {limit}: {'; '.join(one.told() for one in found)}."


def _open(found: tuple[Candidate, ...], good: list[Candidate], criteria: SuccessSpec) -> str:
    if not found:
        return f"No candidate has a result on {criteria.task}."
    if good:
        return (
            f"{listed(one.configuration for one in good)}: {asked(criteria)}, but the figures are not sound."
        )
    hopeful = [one for one in found if could_confirm(one, criteria)]
    if not hopeful:
        told = "; ".join(one.told() for one in found)
        return f"No candidate can still be {asked(criteria)}, but not all of them are rejected: {told}."
    told = "; ".join(one.told() for one in hopeful)
    return f"The intervals do not decide whether any candidate is {asked(criteria)}: {told}."


def _doubts(good: list[Candidate], barred: dict[str, str]) -> list[str]:
    if not good:
        return []
    names = {one.configuration for one in good}
    guards = listed(guard for name, guard in barred.items() if name in names) or listed(barred.values())
    return [f"What the guards call invalid ({guards}) must be mended first; `unmask check` explains it."]
