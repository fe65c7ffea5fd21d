"""What the figures come to, in words: for the summary and the analysis. Every sentence stands on a computed figure."""

from collections.abc import Iterable, Iterator

from unmask.analysis.frontier import Point
from unmask.analysis.likeness import acts, distinct, spec_of, threshold
from unmask.analysis.table import ConfigurationResult
from unmask.analysis.words import counted, in_percent, join_words, points, span
from unmask.report.document import ExperimentPart, TableLine, TaskPart, best_point
from unmask.spec import PolicySpec

SIGNIFICANT = 0.05


def leading(part: ExperimentPart) -> list[str]:
    """What must be known before any figure is read: configurations that cannot differ by construction."""
    found: dict[tuple[str, ...], TaskPart] = {}
    for task in part.tasks:
        for names in task.equal:
            found.setdefault(names, task)
    if not found:
        return []
    sets = "; ".join(", ".join(names) for names in found)
    some = next(iter(found.items()))
    reason = _why_alike(some[1], some[0][0])
    distinct = {name: names for names in found for name in names}
    configurations = {line.name for task in part.tasks for line in task.lines if acts(line.entry)}
    different = len({distinct.get(name, (name,)) for name in configurations})
    return [
        f"Equal by construction: {sets}. Under these policies {reason}, so the choice of layers measures nothing: "
        f"{counted(len(configurations), 'configuration')} that reuse work are {different} in truth. Read each set as "
        "one measurement; a difference within it would be an error."
    ]


def status(part: ExperimentPart) -> str:
    """How complete an experiment is."""
    runs = sum(len(task.lines) for task in part.tasks)
    timed = len({timing.run for timing in part.timings})
    told = (
        [counted(runs, "imported summary").replace("summarys", "summaries")]
        if part.about.foreign
        else [
            counted(runs, "accuracy run"),
            counted(timed, "timing run"),
        ]
    )
    if part.about.missing:
        told.append(f"{len(part.about.missing)} planned without a result")
    limited = sum(line.entry.limit is not None for task in part.tasks for line in task.lines)
    if limited and not part.about.foreign:
        told.append(f"{limited} on limited rows")
    if part.about.retracted:
        told.append(f"{len(part.about.retracted)} retracted")
    if part.superseded:
        told.append(f"{part.superseded} of an earlier text of the recipe left out")
    word = (
        "imported"
        if part.about.foreign
        else "partial"
        if part.about.missing or part.about.retracted
        else "complete"
    )
    return f"{word} ({', '.join(told)})"


def summary(part: ExperimentPart) -> list[str]:
    """A few sentences: what was asked, what came out, what is doubtful."""
    told = leading(part)
    if part.verdict is not None:
        told.append(f"{part.verdict.answer.capitalize()}. {part.verdict.reason}")
    for task in part.tasks:
        told += [f"{task.name}: {sentence}" for sentence in losses(task)]
    severe = [finding for finding in part.findings if finding.severity == "invalid"]
    if severe:
        verb = "makes" if len(severe) == 1 else "make"
        told.append(
            f"{counted(len(severe), 'finding')} of the guards {verb} figures invalid: "
            f"{join_words(finding.guard for finding in severe)}."
        )
    return told


def analysis(part: ExperimentPart) -> Iterator[tuple[str, str]]:
    """Findings of the figures themselves, each with the task it is about."""
    for task in part.tasks:
        for sentence in (*baseline(task), *losses(task), *speeds(task), *plane(task), *best(task)):
            yield task.name, sentence


def baseline(task: TaskPart) -> Iterator[str]:
    """Whether the controls agree."""
    if len(task.baselines) < 2:
        return
    every = [line.entry for line in task.lines if line.name in task.baselines]
    entries = distinct(every)
    yield from _one_run(every)
    if len(entries) < 2:
        return
    digests = {entry.answers for entry in entries}
    same = len({entry.value for entry in entries}) == 1
    names = join_words(entry.configuration for entry in entries)
    if not same:
        yield f"{names} are the same baseline and differ in accuracy: that is the error of the measurement."
    elif None in digests:
        yield f"{names} are the same baseline and have the same accuracy, as they must."
    elif len(digests) == 1:
        yield f"{names} are the same baseline and answered alike, word for word, as they must."
    else:
        yield f"{names} are the same baseline, but their answers differ."


def _one_run(entries: Iterable[ConfigurationResult]) -> Iterator[str]:
    """Names that stand for one and the same run."""
    by_run: dict[str, list[str]] = {}
    for entry in entries:
        if entry.run:
            by_run.setdefault(entry.run, []).append(entry.configuration)
    for names in by_run.values():
        if len(names) > 1:
            yield f"{join_words(names)} are one run under {len(names)} names, so they do not bear each other out."


def losses(task: TaskPart) -> Iterator[str]:
    """Who loses accuracy beyond chance."""
    if task.control is None and task.awaited:
        yield f"The control {task.awaited} has no result yet, so no drops are shown."
        return
    tested = [line for line in task.lines if line.p_value is not None and line.loss is not None]
    if not tested or task.control is None:
        yield from _unpaired(task)
        return
    sure = [line for line in tested if (line.p_value or 0.0) < SIGNIFICANT]
    lose = [line for line in sure if line.loss and line.loss.value > 0]
    gain = [line for line in sure if line.loss and line.loss.value < 0]
    against = f"against {task.control.configuration} ({in_percent(task.control.value)} %)"
    if lose:
        yield f"Losses beyond chance {against}: {_figures(lose)}."
    if gain:
        yield f"Gains beyond chance {against}, as negative losses: {_figures(gain)}."
    rest = [line for line in tested if line not in sure]
    if rest:
        yield (
            f"Losses that cannot be told from chance on {counted(task.rows or 0, 'row')}, {against}: "
            f"{_figures(rest)}."
        )


def speeds(task: TaskPart) -> Iterator[str]:
    """Speed against work."""
    timed = [line for line in task.lines if line.speedup is not None and acts(line.entry)]
    told = []
    for line in timed:
        if line.speedup is not None:
            bounds = line.speedup.bounds
            work = "" if line.work is None else f", {line.work:.2f} times the operations a token"
            told.append(
                f"{line.name} {line.speedup.value:.2f} ({bounds}) with {in_percent(line.skipped)} % skipped{work}"
            )
    if told:
        yield f"Speed-up and layer work: {'; '.join(told)}."


def plane(task: TaskPart) -> Iterator[str]:
    """Who is on the frontier, and whether a threshold alone does better."""
    points_ = task.by_speed if len(task.by_speed) > 1 else task.by_work
    if len(points_) < 2:
        return
    what = "speed" if points_[0].axis == "speed" else "operations a token"
    kept = [point.configuration for point in points_ if not point.dominated_by]
    yield f"By accuracy and {what}, not dominated: {join_words(kept)}."
    beaten = [point for point in points_ if point.dominated_by and point.acts]
    by_threshold = [point for point in beaten if _by_threshold(task, point)]
    if by_threshold:
        yield (
            f"Plain decoding at another threshold does at least as well as "
            f"{join_words(point.configuration for point in by_threshold)}."
        )


def best(task: TaskPart) -> Iterator[str]:
    """The best configuration under the accuracy budget."""
    if len(task.by_speed) < 2:
        return
    found = best_point(task)
    if found is None or found.loss is None:
        yield (
            f"No timed configuration is faster than the control and surely loses at most {points(task.budget)}; the "
            "control stays the best."
        )
        return
    yield (
        f"Best under a budget of {points(task.budget)}: {found.configuration}, {found.gain:.2f} times as fast, losing "
        f"{points(found.loss.value)} ({span(found.loss.interval.low, found.loss.interval.high)})."
    )


def _unpaired(task: TaskPart) -> Iterator[str]:
    """For imports: differences without rows, so without tests."""
    known = [line for line in task.lines if line.loss is not None and acts(line.entry)]
    if not known or task.control is None:
        return
    if len({line.entry.value for line in task.lines}) == 1:
        yield f"All {len(task.lines)} configurations have the same accuracy, {in_percent(task.control.value, 2)} %."
        return
    yield (
        f"Losses against {task.control.configuration} ({in_percent(task.control.value)} %), not paired by row: "
        f"{_figures(known)}."
    )


def _figures(lines: Iterable[TableLine]) -> str:
    """Losses with their intervals; configurations with the same figures are named together."""
    told: dict[str, list[str]] = {}
    for line in lines:
        if line.loss is not None:
            bounds = span(line.loss.interval.low, line.loss.interval.high)
            told.setdefault(f"{in_percent(line.loss.value)} points ({bounds})", []).append(line.name)
    return "; ".join(f"{figure} for {join_words(names)}" for figure, names in told.items())


def _why_alike(task: TaskPart, name: str) -> str:
    entry = task.group.entry(name)
    spec = spec_of(entry) if entry else None
    return (spec or PolicySpec()).why_alike


def _by_threshold(task: TaskPart, point: Point) -> bool:
    """Whether plain decoding at another threshold than the control's is among those that beat it."""
    usual = threshold(task.control) if task.control else None
    for name in point.dominated_by:
        entry = task.group.entry(name)
        found = threshold(entry) if entry else None
        if found is not None and found != usual:
            return True
    return False
