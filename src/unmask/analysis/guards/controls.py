"""Controls that differ: configurations that are the baseline under several names."""

from statistics import median

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts, alike, distinct
from unmask.analysis.records import Entry, Group, Table, Timing
from unmask.analysis.speeds import FEWEST_ROUNDS
from unmask.analysis.words import between, listed, percent

ABOUT = About(
    id="controls-differ",
    severity="invalid",
    title="Controls that must be equal differ",
    explanation=(
        "k = 1 reuses nothing, so over all subsets it must give the same answers, the same accuracy and, within "
        "the noise, the same speed. What differs between controls is the error of the measurement."
    ),
    advice="Find the cause before reading any other figure; no difference smaller than this one means anything.",
)
SPEED_NOISE = 1.1
"""Ratio of speeds of single runs that is still called equal."""
TIMED_NOISE = 1.02
"""The same for medians of interleaved rounds whose intervals do not meet."""


def check(table: Table) -> list[Finding]:
    """Compare everything that must equal the baseline, in answers, accuracy and speed."""
    found = []
    for group in table.groups():
        for same in alike(entry for entry in group.entries if not acts(entry)):
            entries = distinct(same)
            if len(entries) > 1:
                found += _results(group, entries) + _speeds(group, entries)
    for experiment in table.experiments:
        for timings in alike(one for one in table.timings_of(experiment.name) if not acts(one)):
            found += _timed(timings)
    return found


def _results(group: Group, entries: list[Entry]) -> list[Finding]:
    names = listed(entry.configuration for entry in entries)
    told = []
    digests = {entry.answers for entry in entries if entry.answers}
    if len(digests) > 1:
        told.append(f"{len(digests)} different sets of answers")
    if len({entry.value for entry in entries}) > 1:
        told.append(f"accuracies of {between([entry.value * 100 for entry in entries], '{:.2f}')} %")
    counts = {entry.tokens for entry in entries if entry.tokens is not None}
    if len(counts) > 1 and len(digests) < 2:
        told.append(f"{between(list(counts), '{:,}')} tokens")
    if not told:
        return []
    sentence = f"{group.name}: {names} must be equal, but have {' and '.join(told)}."
    return [ABOUT.finding("invalid", sentence, group, entries)]


def _speeds(group: Group, entries: list[Entry]) -> list[Finding]:
    """Speeds of single runs: only foreign tables offer them as results."""
    timed = [entry for entry in entries if entry.foreign and entry.run_tokens_per_second]
    speeds = [entry.run_tokens_per_second or 0.0 for entry in timed]
    if len(timed) < 2 or max(speeds) / min(speeds) <= SPEED_NOISE:
        return []
    told = ", ".join(f"{entry.configuration} {entry.run_tokens_per_second:g}" for entry in timed)
    sentence = (
        f"{group.name}: controls that must be equal differ {max(speeds) / min(speeds):.2f}x in tokens/s ({told}); "
        f"a change of {percent(max(speeds) / min(speeds) - 1, 0)} can therefore be noise."
    )
    return [ABOUT.finding("warning", sentence, group, timed)]


def _timed(timings: list[Timing]) -> list[Finding]:
    """Controls of one timing run whose intervals do not meet."""
    found = []
    for run in dict.fromkeys(timing.run for timing in timings):
        beside = [timing for timing in timings if timing.run == run and timing.speedup]
        # Of too few rounds an interval is none, so that it says nothing that it does not meet another.
        if len(beside) < 2 or 0 < len(beside[0].seconds) < FEWEST_ROUNDS:
            continue
        lows = [timing.speedup.low or 0.0 for timing in beside if timing.speedup]
        highs = [timing.speedup.high or 0.0 for timing in beside if timing.speedup]
        medians = [timing.speedup.median or 0.0 for timing in beside if timing.speedup]
        if max(lows) > min(highs) and max(medians) / median(medians) > TIMED_NOISE:
            sentence = (
                f"Timing on {beside[0].task}: {listed(one.configuration for one in beside)} must be equally fast, but "
                f"their speed-ups are {between(medians, '{:.3f}')} and their intervals do not meet."
            )
            found.append(ABOUT.finding("warning", sentence, beside[0], beside))
    return found
