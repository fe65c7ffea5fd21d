"""Speeds that were not measured under the conditions of a timing run."""

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.records import Table, Timing
from unmask.analysis.speeds import FEWEST_ROUNDS
from unmask.analysis.words import counted, listed

ABOUT = About(
    id="speed-source",
    severity="warning",
    title="A speed that was not measured by the rules",
    explanation=(
        "A speed-up is believable when all configurations ran in turns in one process on one quiet machine, warmed up "
        "and repeated. Totals of accuracy runs hold cold starts, other nodes and answers from a cache."
    ),
    advice="Add a [timing] table to the recipe and run it on a quiet machine.",
)
BUSY = 0.75
"""Load a core at which others are at work; asked only where their processes were not counted."""


def check(table: Table) -> list[Finding]:
    """Look at where speeds come from and what else the machine did."""
    found = []
    for group in table.groups():
        timed = [entry for entry in group.entries if entry.foreign and entry.run_tokens_per_second]
        if timed:
            sentence = (
                f"{group.name}: the speeds of {counted(len(timed), 'configuration')} are totals of accuracy runs, "
                f"without warm-up, repeats or interleaving; they can rank nothing."
            )
            found.append(ABOUT.finding("warning", sentence, group, timed))
    seen: set[tuple[str, str]] = set()
    for timing in table.timings:
        if (timing.experiment, timing.run) not in seen:
            seen.add((timing.experiment, timing.run))
            found += _conditions(table, timing)
    return found


def _conditions(table: Table, timing: Timing) -> list[Finding]:
    state = timing.conditions
    told = []
    if state.other_processes:
        told.append(counted(state.other_processes, "other busy process", "es"))
    load = state.load_before if state.other_processes is None else None
    if load is not None and timing.cores and load / timing.cores > BUSY:
        told.append(f"a load of {load:g} on {timing.cores} cores before it began")
    if state.throttled:
        told.append("a throttled clock")
    if timing.speedup is None and timing.configuration != timing.control:
        told.append("no speed-up against its control")
    if 0 < len(timing.seconds) < FEWEST_ROUNDS:
        told.append(f"{counted(len(timing.seconds), 'round')}, too few for an interval")
    found = []
    beside = [one for one in table.timings if one.run == timing.run and one.experiment == timing.experiment]
    if told:
        sentence = f"The timing run {timing.run} on {timing.task} had {listed(told)}."
        advice = (
            f"Repeat the timing run on a quiet machine, with nothing else on its device and at least {FEWEST_ROUNDS} "
            "repeats."
        )
        found.append(ABOUT.finding("warning", sentence, timing, beside, advice))
    return found + _elsewhere(table, timing, beside)


def _elsewhere(table: Table, timing: Timing, beside: list[Timing]) -> list[Finding]:
    """Accuracy on one kind of machine, speed on another."""
    machine = timing.provenance.get("machine")
    others = {
        str(entry.provenance["machine"])
        for entry in table.entries
        if entry.experiment == timing.experiment and entry.provenance.get("machine") not in (None, machine)
    }
    if machine is None or not others:
        return []
    sentence = (
        f"Speeds on {timing.task} were measured on {machine}, accuracies on {listed(sorted(others))}: the frontier "
        f"joins figures of different machines."
    )
    return [ABOUT.finding("info", sentence, timing, beside)]
