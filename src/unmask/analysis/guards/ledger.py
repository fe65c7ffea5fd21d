"""Speed and counted work that disagree."""

from statistics import median

from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts
from unmask.analysis.records import Group, Table, Timing
from unmask.analysis.speeds import FEWEST_ROUNDS
from unmask.analysis.words import percent
from unmask.analysis.work import reuse_fraction, work_ratio

ABOUT = About(
    id="speed-and-ledger",
    severity="invalid",
    title="Tokens/s and the ledger disagree",
    explanation=(
        "Less work on the same machine takes less time. If work is said to be skipped and the speed falls, the work "
        "was not skipped, more steps were needed, or skipping costs more than it saves."
    ),
    advice="Compare the operations for each token with the control's, and profile a replayed step.",
)
SAVED = 0.95
"""Share of the control's operations a token below which a gain must be visible."""
UNEXPLAINED = 1.15
"""How much faster than the saved operations explain a configuration may be before it is suspicious."""


def check(table: Table) -> list[Finding]:
    """Compare speeds with what is said to be skipped."""
    found = [finding for group in table.groups() for finding in _claimed(group)]
    for timing in table.timings:
        if acts(timing) and timing.speedup and not 0 < len(timing.seconds) < FEWEST_ROUNDS:
            found += _counted(table, timing)
    return found


def _claimed(group: Group) -> list[Finding]:
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
    return [ABOUT.finding("invalid" if everyone else "warning", sentence, group, slower)]


def _counted(table: Table, timing: Timing) -> list[Finding]:
    base = next(
        (
            one
            for one in table.timings
            if (one.run, one.experiment, one.configuration) == (timing.run, timing.experiment, timing.control)
        ),
        None,
    )
    ratio = work_ratio(base, timing) if base else None
    speedup, skipped = timing.speedup, reuse_fraction(timing)
    if ratio is None or not skipped or speedup is None or speedup.low is None or speedup.high is None:
        return []
    gain = f"{speedup.median:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})"
    start = f"Timing on {timing.task}: {timing.configuration} skips {percent(skipped, 0)} of the layer work"
    if speedup.high < 1 and ratio < SAVED:
        sentence = (
            f"{start} and needs {ratio:.2f} of the control's operations a token, but its speed is {gain}."
        )
        return [ABOUT.finding("warning", sentence, timing, [timing])]
    if speedup.high < 1:
        sentence = (
            f"{start}, but more steps eat the skip: {ratio:.2f} of the control's operations a token, "
            f"speed {gain}."
        )
        return [ABOUT.finding("info", sentence, timing, [timing])]
    if speedup.low > UNEXPLAINED / ratio:
        sentence = (
            f"{start} and needs {ratio:.2f} of the control's operations a token, which explains "
            f"{1 / ratio:.2f}x, but its speed is {gain}."
        )
        return [ABOUT.finding("warning", sentence, timing, [timing])]
    return []
