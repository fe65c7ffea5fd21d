"""A speed far from that of its likes."""

from statistics import median

from unmask.analysis.guards.finding import About, Finding, Severity
from unmask.analysis.likeness import alike
from unmask.analysis.records import Entry, Group, Table, Timing
from unmask.analysis.words import listed

ABOUT = About(
    id="speed-outlier",
    severity="invalid",
    title="A speed far from that of configurations that do the same work",
    explanation=(
        "Configurations that must decode alike do the same work on the same rows; if one of them is much slower "
        "or faster, the machine was measured: another node, a cold start, other jobs."
    ),
    advice="Measure all configurations in one timing run, interleaved; do not use this one as a control.",
)
FACTOR = 1.25
"""Distance from the median of its likes at which a speed is no longer believed."""


def check(table: Table) -> list[Finding]:
    """Look for speeds that leave their likes."""
    found = []
    for group in table.groups():
        speeds = [(entry, entry.run_tokens_per_second) for entry in group.entries if entry.foreign]
        known = [(entry, speed) for entry, speed in speeds if speed]
        for entries in alike(entry for entry, _ in known):
            found += _outliers(
                group, [(entry, entry.run_tokens_per_second or 0.0) for entry in entries], "tokens/s"
            )
    for experiment in table.experiments:
        for timings in alike(table.timings_of(experiment.name)):
            for run in dict.fromkeys(timing.run for timing in timings):
                rates = [(one, _rate(one)) for one in timings if one.run == run and _rate(one)]
                unit = "tokens/s" if timings[0].path == "generation" else "requests/s"
                found += _outliers(timings[0], rates, unit)
    return found


def _rate(timing: Timing) -> float:
    rate = timing.tokens_per_second if timing.path == "generation" else timing.requests_per_second
    return rate or 0.0


def _outliers(
    place: Group | Timing, rates: "list[tuple[Entry, float]] | list[tuple[Timing, float]]", unit: str
) -> list[Finding]:
    if len(rates) < 2:
        return []
    found = []
    for one, rate in rates:
        others = [speed for other, speed in rates if other is not one]
        usual = median(others)
        apart = max(rate / usual, usual / rate)
        # Of two that disagree nobody can say which is wrong: `controls-differ` names both.
        agree = len(others) > 1 and max(others) / min(others) < FACTOR
        if apart <= FACTOR or not agree:
            continue
        control = place.experiment.control if isinstance(place, Group) else place.control
        severity: Severity = "invalid" if one.configuration == control else "warning"
        names = listed(other.configuration for other, _ in rates if other is not one)
        extra = "; it is the control, so every speed-up against it is wrong" if severity == "invalid" else ""
        sentence = (
            f"{place.name if isinstance(place, Group) else place.task}: {one.configuration} ran at {rate:g} {unit}, "
            f"{names} at {usual:g}: a factor of {apart:.2f} between equal configurations{extra}."
        )
        found.append(ABOUT.finding(severity, sentence, place, [one]))
    return found
