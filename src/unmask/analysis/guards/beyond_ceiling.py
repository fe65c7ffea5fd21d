"""A success criterion that no run could ever meet."""

from unmask.analysis.ceilings import Bound, bound_of
from unmask.analysis.criteria import is_candidate
from unmask.analysis.guards.finding import About, Finding
from unmask.analysis.likeness import acts
from unmask.analysis.records import Entry, Group, Table
from unmask.analysis.words import listed
from unmask.spec.recipe import SuccessSpec

ABOUT = About(
    id="beyond-ceiling",
    severity="invalid",
    title="The success criterion lies beyond the ceiling",
    explanation=(
        "Skipping a part of the work cannot gain more than that part: what still runs, and the steps that may not "
        "reuse, bound the speed-up. A criterion above the bound is decided before anything runs."
    ),
    advice="Skip more (full-block steps too, more layers, fewer rows) or ask for less; `unmask ceiling` knows.",
)


def check(table: Table) -> list[Finding]:
    """Compare the criteria with the ceilings of their candidates."""
    found = []
    for group in table.groups():
        success = group.experiment.success
        if success is None:
            found += _told(group)
        elif group.task == success.task:
            found += _judged(group, success)
    return found


def _bounds(group: Group, entries: list[Entry]) -> list[tuple[Entry, Bound]]:
    pairs = [(entry, bound_of(entry, group.control)) for entry in entries]
    return [(entry, bound) for entry, bound in pairs if bound is not None]


def _judged(group: Group, success: SuccessSpec) -> list[Finding]:
    control = group.entry(success.control)
    if control is None:
        return []
    # Other decode settings take other steps, so nothing bounds them.
    named = [entry for entry in group.entries if is_candidate(entry.configuration, success)]
    entries = [entry for entry in named if dict(entry.decode) == dict(control.decode)]
    wanted = success.confirm.speedup
    known = _bounds(group, entries)
    short = [(entry, bound) for entry, bound in known if bound.speedup <= wanted]
    if not short:
        return []
    names, figures = listed(entry.configuration for entry, _ in short), _figures(short)
    everyone = len(short) == len(named)
    close = "so no run can confirm the hypothesis" if everyone else "so they cannot confirm the hypothesis"
    sentence = (
        f"{group.name}: more than {wanted:g}x is asked for, but at equal steps {names} can reach {figures} at most "
        f"({short[0][1].accounting}{_on(short[0][1])}), {close}."
    )
    return [
        ABOUT.finding("invalid" if everyone else "warning", sentence, group, [entry for entry, _ in short])
    ]


def _told(group: Group) -> list[Finding]:
    """Without criteria: what a claim about imported figures would have to stay below."""
    entries = [entry for entry in group.entries if entry.foreign and acts(entry) and entry.tokens]
    known = _bounds(group, entries)
    if not known:
        return []
    sentence = (
        f"{group.name}: at equal steps no speed-up above {_figures(known)} is possible ({known[0][1].accounting}"
        f"{_on(known[0][1])}); a criterion above that cannot be met."
    )
    return [ABOUT.finding("info", sentence, group, [entry for entry, _ in known])]


def _figures(known: list[tuple[Entry, Bound]]) -> str:
    by_period: dict[str, float] = {}
    for entry, bound in known:
        name = f"k = {entry.policy['k']}" if "k" in entry.policy else entry.configuration
        by_period[name] = max(bound.speedup, by_period.get(name, 0.0))
    return ", ".join(f"{speedup:.2f}x ({name})" for name, speedup in by_period.items())


def _on(bound: Bound) -> str:
    return f"; roofline of {bound.device}" if bound.device else ""
