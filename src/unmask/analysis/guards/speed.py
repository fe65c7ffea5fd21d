"""Guards over speeds: controls that differ, outliers, speeds against counted work, how speeds were measured.

Imported tables have no timing runs: their speeds are totals of accuracy runs. Each guard says what these still show.
"""

from statistics import median

from unmask.analysis.gains import FEWEST_ROUNDS
from unmask.analysis.guards.finding import Finding, Severity, guard
from unmask.analysis.likeness import acts, alike, but_threshold, distinct, reuse_fraction, work_ratio
from unmask.analysis.table import ConfigurationResult, ConfigurationTiming, Table, TaskResults
from unmask.analysis.words import between, counted, join_words, percent

SPEED_NOISE = 1.1
"""Ratio of speeds of single runs that is still called equal."""
TIMED_NOISE = 1.02
"""The same for medians of interleaved rounds whose intervals do not meet."""


@guard(
    severity="invalid",
    title="Controls that must be equal differ",
    explanation=(
        "k = 1 reuses nothing, so over all subsets it must give the same answers, the same accuracy and, within "
        "the noise, the same speed. What differs between controls is the error of the measurement."
    ),
    advice="Find the cause before reading any other figure; no difference smaller than this one means anything.",
)
def controls_differ(table: Table) -> list[Finding]:
    """Compare everything that must equal the baseline, in answers, accuracy and speed."""
    findings = []
    for group in table.groups():
        for same in alike(entry for entry in group.entries if not acts(entry)):
            entries = distinct(same)
            if len(entries) > 1:
                findings += _results(group, entries) + _speeds(group, entries)
    for experiment in table.experiments:
        for timings in alike(timing for timing in table.timings_of(experiment.name) if not acts(timing)):
            findings += _timed(timings)
    return findings


def _results(group: TaskResults, entries: list[ConfigurationResult]) -> list[Finding]:
    names = join_words(entry.configuration for entry in entries)
    differences = []
    digests = {entry.answers for entry in entries if entry.answers}
    if len(digests) > 1:
        differences.append(f"{len(digests)} different sets of answers")
    if len({entry.value for entry in entries}) > 1:
        differences.append(f"accuracies of {between([entry.value * 100 for entry in entries], '{:.2f}')} %")
    counts = {entry.tokens for entry in entries if entry.tokens is not None}
    if len(counts) > 1 and len(digests) < 2:
        differences.append(f"{between(list(counts), '{:,}')} tokens")
    if not differences:
        return []
    sentence = f"{group.name}: {names} must be equal, but have {' and '.join(differences)}."
    return [controls_differ.finding("invalid", sentence, group, entries)]


def _speeds(group: TaskResults, entries: list[ConfigurationResult]) -> list[Finding]:
    """Speeds of single runs: only foreign tables offer them as results."""
    timed = [entry for entry in entries if entry.foreign and entry.run_tokens_per_second]
    speeds = [entry.run_tokens_per_second or 0.0 for entry in timed]
    if len(timed) < 2 or max(speeds) / min(speeds) <= SPEED_NOISE:
        return []
    figures = ", ".join(f"{entry.configuration} {entry.run_tokens_per_second:g}" for entry in timed)
    ratio = max(speeds) / min(speeds)
    sentence = (
        f"{group.name}: controls that must be equal differ {ratio:.2f}x in tokens/s ({figures}); "
        f"a change of {percent(ratio - 1, 0)} can therefore be noise."
    )
    return [controls_differ.finding("warning", sentence, group, timed)]


def _timed(timings: list[ConfigurationTiming]) -> list[Finding]:
    """Controls of one timing run whose intervals do not meet."""
    findings = []
    for run in dict.fromkeys(timing.run for timing in timings):
        beside = [timing for timing in timings if timing.run == run and timing.speedup]
        # Of too few rounds an interval is none, so that it says nothing that it does not meet another.
        if len(beside) < 2 or 0 < len(beside[0].seconds) < FEWEST_ROUNDS:
            continue
        lows = [timing.speedup.low or 0.0 for timing in beside if timing.speedup]
        highs = [timing.speedup.high or 0.0 for timing in beside if timing.speedup]
        medians = [timing.speedup.median or 0.0 for timing in beside if timing.speedup]
        if max(lows) > min(highs) and max(medians) / median(medians) > TIMED_NOISE:
            names = join_words(timing.configuration for timing in beside)
            sentence = (
                f"Timing on {beside[0].task}: {names} must be equally fast, but their speed-ups are "
                f"{between(medians, '{:.3f}')} and their intervals do not meet."
            )
            findings.append(controls_differ.finding("warning", sentence, beside[0], beside))
    return findings


OUTLIER_FACTOR = 1.25
"""Distance from the median of its likes at which a speed is no longer believed."""


@guard(
    severity="invalid",
    title="A speed far from that of configurations that do the same work",
    explanation=(
        "Configurations that must decode alike do the same work on the same rows. If one of them is much slower or "
        "faster, the measurement shows the machine and not the configuration: another node, a cold start, other jobs."
    ),
    advice="Measure all configurations in one timing run, interleaved; do not use this one as a control.",
    spoils=("speed",),
)
def speed_outlier(table: Table) -> list[Finding]:
    """Look for speeds that leave their likes."""
    findings = []
    for group in table.groups():
        speeds = [(entry, entry.run_tokens_per_second) for entry in group.entries if entry.foreign]
        known = [(entry, speed) for entry, speed in speeds if speed]
        for entries in alike(entry for entry, _ in known):
            findings += _outliers(
                group, [(entry, entry.run_tokens_per_second or 0.0) for entry in entries], "tokens/s"
            )
    for experiment in table.experiments:
        for timings in alike(table.timings_of(experiment.name)):
            for run in dict.fromkeys(timing.run for timing in timings):
                rates = [(timing, _rate(timing)) for timing in timings if timing.run == run and _rate(timing)]
                unit = "tokens/s" if timings[0].path == "generation" else "requests/s"
                findings += _outliers(timings[0], rates, unit)
    return findings


def _rate(timing: ConfigurationTiming) -> float:
    rate = timing.tokens_per_second if timing.path == "generation" else timing.requests_per_second
    return rate or 0.0


def _outliers(
    place: TaskResults | ConfigurationTiming,
    rates: "list[tuple[ConfigurationResult, float]] | list[tuple[ConfigurationTiming, float]]",
    unit: str,
) -> list[Finding]:
    if len(rates) < 2:
        return []
    findings = []
    for result, rate in rates:
        others = [speed for other, speed in rates if other is not result]
        usual = median(others)
        apart = max(rate / usual, usual / rate)
        # Of two that disagree nobody can say which is wrong: `controls-differ` names both.
        agree = len(others) > 1 and max(others) / min(others) < OUTLIER_FACTOR
        if apart <= OUTLIER_FACTOR or not agree:
            continue
        control = place.experiment.control if isinstance(place, TaskResults) else place.control
        severity: Severity = "invalid" if result.configuration == control else "warning"
        names = join_words(other.configuration for other, _ in rates if other is not result)
        extra = "; it is the control, so every speed-up against it is wrong" if severity == "invalid" else ""
        where = place.name if isinstance(place, TaskResults) else place.task
        sentence = (
            f"{where}: {result.configuration} ran at {rate:g} {unit}, {names} at {usual:g}: a factor of {apart:.2f} "
            f"between equal configurations{extra}."
        )
        findings.append(speed_outlier.finding(severity, sentence, place, [result]))
    return findings


SAVED = 0.95
"""Share of the control's operations a token below which a gain must be visible."""
UNEXPLAINED = 1.15
"""How much faster than the saved operations explain a configuration may be before it is suspicious."""


@guard(
    severity="invalid",
    title="Tokens/s and the ledger disagree",
    explanation=(
        "Less work on the same machine takes less time. If work is said to be skipped and the speed falls, the work "
        "was not skipped, more steps were needed, or skipping costs more than it saves."
    ),
    advice="Compare the operations for each token with the control's, and profile a replayed step.",
    spoils=("speed",),
)
def speed_and_ledger(table: Table) -> list[Finding]:
    """Compare speeds with what is said to be skipped."""
    found = [finding for group in table.groups() for finding in _claimed(group)]
    runs: dict[tuple[str, str], list[ConfigurationTiming]] = {}
    for timing in table.timings:
        runs.setdefault((timing.experiment, timing.run), []).append(timing)
    return found + [finding for timings in runs.values() for finding in _counted(timings)]


def _claimed(group: TaskResults) -> list[Finding]:
    """Foreign figures have no ledger: the claim is all there is."""
    timed = [entry for entry in group.entries if entry.foreign and entry.run_tokens_per_second]
    plain = [entry.run_tokens_per_second or 0.0 for entry in timed if not acts(entry)]
    reusing = [entry for entry in timed if acts(entry)]
    if not plain or not reusing:
        return []
    usual = median(plain)
    slower = [entry for entry in reusing if (entry.run_tokens_per_second or 0.0) < usual]
    if not slower:
        return []
    speeds = [entry.run_tokens_per_second or 0.0 for entry in slower]
    everyone = len(slower) == len(reusing)
    sentence = (
        f"{group.name}: {'all ' if everyone else ''}{len(slower)} configurations that are said to skip layers "
        f"are slower than the controls ({min(speeds):g} to {max(speeds):g} against {usual:g} tokens/s, "
        f"{percent(1 - max(speeds) / usual, 0)} to {percent(1 - min(speeds) / usual, 0)} less)."
    )
    return [speed_and_ledger.finding("invalid" if everyone else "warning", sentence, group, slower)]


def _counted(timings: list[ConfigurationTiming]) -> list[Finding]:
    """What the speeds of one timing run contradict: one finding for all that contradict it alike."""
    kinds: dict[tuple[Severity, str], list[tuple[ConfigurationTiming, str]]] = {}
    for timing in timings:
        base = next((other for other in timings if other.configuration == timing.control), None)
        measured = timing.speedup if not 0 < len(timing.seconds) < FEWEST_ROUNDS else None
        # Operations of other blocks or of another checkpoint take another time each.
        comparable = base is not None and acts(timing) and but_threshold(base) == but_threshold(timing)
        ratio = work_ratio(base, timing) if base is not None and comparable else None
        if ratio is None or not reuse_fraction(timing) or measured is None:
            continue
        low, high = measured.low, measured.high
        if low is None or high is None:
            continue
        kind = _contradiction(ratio, low, high)
        if kind is not None:
            figures = (
                f"{timing.configuration} ({ratio:.2f} of the control's operations a token, speed "
                f"{measured.median:.2f}x, {low:.2f} to {high:.2f})"
            )
            kinds.setdefault(kind, []).append((timing, figures))
    findings = []
    for (severity, what), concerned in kinds.items():
        sentence = (
            f"Timing on {concerned[0][0].task}: {what}: {'; '.join(figures for _, figures in concerned)}."
        )
        results = [timing for timing, _ in concerned]
        findings.append(speed_and_ledger.finding(severity, sentence, results[0], results))
    return findings


def _contradiction(ratio: float, low: float, high: float) -> tuple[Severity, str] | None:
    """Whether a speed-up between two bounds contradicts a share of the control's operations, and how."""
    if high < 1 and ratio < SAVED:
        return "warning", "slower than the control, though less is computed for each token"
    if high < 1:
        return "info", "slower than the control, since more steps take as much work as is skipped"
    if low > UNEXPLAINED / ratio:
        return "warning", "faster than the saved operations explain"
    return None


BUSY = 0.75
"""Load a core at which others are at work; asked only where their processes were not counted."""


@guard(
    severity="warning",
    title="A speed that was not measured by the rules",
    explanation=(
        "A speed-up is believable when all configurations ran in turns in one process on one quiet machine, warmed up "
        "and repeated. Totals of accuracy runs hold cold starts, other nodes and answers from a cache."
    ),
    advice="Add a [timing] table to the recipe and run it on a quiet machine.",
)
def speed_source(table: Table) -> list[Finding]:
    """Look at where speeds come from and what else the machine did."""
    findings = []
    for group in table.groups():
        timed = [entry for entry in group.entries if entry.foreign and entry.run_tokens_per_second]
        if timed:
            sentence = (
                f"{group.name}: the speeds of {counted(len(timed), 'configuration')} are totals of accuracy runs, "
                f"without warm-up, repeats or interleaving; they cannot rank configurations."
            )
            findings.append(speed_source.finding("warning", sentence, group, timed))
    seen: set[tuple[str, str]] = set()
    for timing in table.timings:
        if (timing.experiment, timing.run) not in seen:
            seen.add((timing.experiment, timing.run))
            findings += _conditions(table, timing)
    return findings


def _conditions(table: Table, timing: ConfigurationTiming) -> list[Finding]:
    state = timing.conditions
    disturbances = []
    if state.other_processes:
        disturbances.append(counted(state.other_processes, "other busy process", "es"))
    load = state.load_before if state.other_processes is None else None
    if load is not None and timing.cores and load / timing.cores > BUSY:
        disturbances.append(f"a load of {load:g} on {timing.cores} cores before it began")
    if state.throttled:
        disturbances.append("a throttled clock")
    if timing.speedup is None and timing.configuration != timing.control:
        disturbances.append("no speed-up against its control")
    if 0 < len(timing.seconds) < FEWEST_ROUNDS:
        disturbances.append(f"{counted(len(timing.seconds), 'round')}, too few for an interval")
    findings = []
    beside = [
        other for other in table.timings if other.run == timing.run and other.experiment == timing.experiment
    ]
    if disturbances:
        sentence = f"The timing run {timing.run} on {timing.task} had {join_words(disturbances)}."
        advice = (
            f"Repeat the timing run on a quiet machine, with nothing else on its device and at least {FEWEST_ROUNDS} "
            "repeats."
        )
        findings.append(speed_source.finding("warning", sentence, timing, beside, advice))
    return findings + _elsewhere(table, timing, beside)


def _elsewhere(table: Table, timing: ConfigurationTiming, beside: list[ConfigurationTiming]) -> list[Finding]:
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
        f"Speeds on {timing.task} were measured on {machine}, accuracies on {join_words(sorted(others))}: the frontier "
        f"joins figures of different machines."
    )
    return [speed_source.finding("info", sentence, timing, beside)]
