"""What a report says in words: what must be known first, and what neither a table nor the verdict says.

A sentence here repeats no figure of a table: it names configurations and says what their figures come to.
"""

from collections.abc import Iterable, Iterator

from unmask.analysis.frontier import Point
from unmask.analysis.gains import GAINED
from unmask.analysis.guards import Finding
from unmask.analysis.likeness import acts, distinct, spec_of, threshold
from unmask.analysis.table import ConfigurationResult, StandIn
from unmask.analysis.words import counted, join_words, points
from unmask.report.document import ExperimentPart, TaskPart, best_point
from unmask.spec import PolicySpec


def leading(part: ExperimentPart) -> list[str]:
    """What must be known before any figure is read: configurations that cannot differ by construction."""
    equal: dict[tuple[str, ...], TaskPart] = {}
    for task in part.tasks:
        for names in task.equal:
            equal.setdefault(names, task)
    if not equal:
        return []
    names, task = next(iter(equal.items()))
    set_of = {name: names for names in equal for name in names}
    reusing = {line.name for task in part.tasks for line in task.lines if acts(line.entry)}
    different = len({set_of.get(name, (name,)) for name in reusing})
    return [
        f"Equal by construction: {'; '.join(', '.join(names) for names in equal)}. Under these policies "
        f"{_why_alike(task, names[0])}, so the choice of layers measures nothing. Read each set as one measurement: "
        f"the {counted(len(reusing), 'configuration')} that reuse work are only {different} different ones."
    ]


def stand_ins(part: ExperimentPart) -> Iterator[tuple[str, list[str]]]:
    """Whose run stands for whom, and what a twin has shown; tasks on which all is the same are named together."""
    tasks: dict[str, list[str]] = {}
    for each in part.experiment.stand_ins:
        stands = f"The run of {each.configuration} stands for {join_words(each.others)}"
        name = each.task if each.limit is None else f"{each.task} (limit {each.limit:g})"
        tasks.setdefault(f"{stands}{_shown_by(each)}.", []).append(name)
    yield from tasks.items()


def _shown_by(stand_in: StandIn) -> str:
    twin = stand_in.twin
    if twin is None:
        return ""
    number = counted(twin.equal + twin.other, "answer")
    if twin.other:
        return f", but {twin.other} of {number} that {twin.configuration} has given itself differ"
    return f"; {number} that {twin.configuration} has given itself are the same, word for word"


def _why_alike(task: TaskPart, name: str) -> str:
    entry = task.group.entry(name)
    spec = spec_of(entry) if entry else None
    return (spec or PolicySpec()).why_alike


def status(part: ExperimentPart) -> str:
    """How complete an experiment is."""
    results = sum(len(distinct(line.entry for line in task.lines)) for task in part.tasks)
    timed = len({timing.run for timing in part.timings})
    if part.experiment.foreign:
        return f"imported ({results:,} {'summary' if results == 1 else 'summaries'})"
    counts = [counted(results, "accuracy run"), counted(timed, "timing run")]
    if twins := sum(each.twin is not None for each in part.experiment.stand_ins):
        counts.append(counted(twins, "twin"))
    sequential = part.experiment.sequential
    if ended := len({sequential.runs[name].name for name in sequential.stopped} if sequential else ()):
        counts.append(f"{ended} decided before the last row")
    if part.experiment.missing:
        counts.append(f"{len(part.experiment.missing)} planned without a result")
    shown = [entry for task in part.tasks for entry in distinct(line.entry for line in task.lines)]
    limited = sum(entry.limit is not None for entry in shown)
    if limited:
        counts.append(f"{limited} on limited rows")
    if part.experiment.retracted:
        counts.append(f"{len(part.experiment.retracted)} retracted")
    if part.superseded:
        counts.append(f"{part.superseded} of an earlier text of the recipe left out")
    word = "partial" if part.experiment.missing or part.experiment.retracted else "complete"
    return f"{word} ({', '.join(counts)})"


def guards_in_short(part: ExperimentPart) -> str:
    """How many findings the guards have, and which guards call figures invalid."""
    invalid = [finding.guard for finding in part.findings if finding.severity == "invalid"]
    warnings = sum(finding.severity == "warning" for finding in part.findings)
    if not invalid and not warnings:
        return "nothing invalid, no warnings"
    names = f" ({join_words(invalid)})" if invalid else ""
    return f"{len(invalid)} invalid{names}, {counted(warnings, 'warning')}"


def observations(part: ExperimentPart) -> list[Finding]:
    """What the guards found, without what the leading note says already."""
    equal = {frozenset(names) for task in part.tasks for names in task.equal}
    return [
        finding
        for finding in part.findings
        if finding.severity != "info" or frozenset(finding.configurations) not in equal
    ]


def key_findings(part: ExperimentPart) -> Iterator[tuple[str, str]]:
    """What the figures come to beyond tables and verdict, each sentence with the tasks it is about."""
    tasks: dict[str, list[str]] = dict(stand_ins(part))
    for task in part.tasks:
        for sentence in (*baseline(task), *chance(task), *plane(task), *best(task)):
            tasks.setdefault(sentence, []).append(task.name)
    for sentence, names in tasks.items():
        yield join_words(names), sentence


def baseline(task: TaskPart) -> Iterator[str]:
    """Whether the controls agree in their answers; that they agree in accuracy is seen in the table."""
    if len(task.baselines) < 2:
        return
    every = [line.entry for line in task.lines if line.name in task.baselines]
    yield from _one_run(entry for entry in every if entry.own is None)
    entries = distinct(every)
    digests = {entry.answers for entry in entries}
    if len(entries) < 2 or None in digests or len({entry.value for entry in entries}) > 1:
        return
    names = join_words(entry.configuration for entry in entries)
    if len(digests) == 1:
        yield f"{names} are the same baseline and answered alike, word for word, as they must."
    else:
        yield f"{names} are the same baseline, but their answers differ."


def _one_run(entries: Iterable[ConfigurationResult]) -> Iterator[str]:
    """Names that stand for the same run."""
    by_run: dict[str, list[str]] = {}
    for entry in entries:
        if entry.run:
            by_run.setdefault(entry.run, []).append(entry.configuration)
    for names in by_run.values():
        if len(names) > 1:
            yield f"{join_words(names)} are one run under {len(names)} names, so they do not confirm each other."


def chance(task: TaskPart) -> Iterator[str]:
    """Who differs from the control beyond chance, by the intervals of the table."""
    tested = [
        line for line in task.lines if line.loss is not None and line.loss.paired and not line.loss.equal
    ]
    if not tested or task.control is None:
        return
    control = task.control.configuration
    sure = [line for line in tested if line.loss and line.loss.differs]
    if not sure:
        yield f"No difference to {control} can be told from chance on {counted(task.rows or 0, 'row')}."
        return
    for verb, sign in (("lose", 1), ("gain", -1)):
        names = [line.name for line in sure if line.loss and line.loss.value * sign > 0]
        if names:
            yield f"Beyond chance, {join_words(names)} {verb}{'s' * (len(names) == 1)} accuracy against {control}."


def plane(task: TaskPart) -> Iterator[str]:
    """Who is on the frontier, and whether a threshold alone does better."""
    placed = task.plane
    if not placed:
        return
    what = GAINED[placed[0].axis]
    kept = [point.configuration for point in placed if not point.dominated_by]
    yield f"By accuracy and {what}, no other configuration dominates {join_words(kept)}."
    beaten = [point for point in placed if point.dominated_by and point.acts and _by_threshold(task, point)]
    if beaten:
        yield (
            "Plain decoding at another threshold does at least as well as "
            f"{join_words(point.configuration for point in beaten)}."
        )


def _by_threshold(task: TaskPart, point: Point) -> bool:
    """Whether plain decoding at another threshold than the control's is among those that beat a point."""
    usual = threshold(task.control) if task.control else None
    entries = [task.group.entry(name) for name in point.dominated_by]
    thresholds = [threshold(entry) for entry in entries if entry]
    return any(value is not None and value != usual for value in thresholds)


def best(task: TaskPart) -> Iterator[str]:
    """The best configuration under the accuracy budget."""
    if not task.plane:
        return
    what, most = GAINED[task.plane[0].axis], best_point(task)
    if most is None:
        yield f"No configuration that surely loses at most {points(task.budget)} gains over the control by {what}."
    else:
        yield (
            f"The best configuration by {what} that surely loses at most {points(task.budget)} is "
            f"{most.configuration}."
        )
