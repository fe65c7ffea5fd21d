"""A document out of a store: tables, verdicts, findings, attempts and provenance of experiments and imports.

Everything that is computed comes from `unmask.analysis`; here it is put together for the two forms of a report.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from unmask.analysis.foreign import import_table
from unmask.analysis.frontier import curves, frontier
from unmask.analysis.gains import COUNTED, Speedup, counted_gain, speedup_of
from unmask.analysis.guards import run_guards
from unmask.analysis.likeness import acts, alike, control_of, reuse_fraction, work_ratio
from unmask.analysis.losses import Comparisons, comparisons_of, loss_of
from unmask.analysis.samples import accuracy_interval
from unmask.analysis.stored import experiment_table, planned_recipe
from unmask.analysis.table import ConfigurationResult, ConfigurationTiming, Measured, Table, TaskResults
from unmask.analysis.verdict import verdict
from unmask.analysis.words import counted
from unmask.errors import UnmaskError
from unmask.report.document import AttemptSpan, Document, ExperimentPart, TableLine, TaskPart
from unmask.spec.recipe import Gained, SuccessSpec
from unmask.spec.sweep import task_label
from unmask.store import Attempt, RunFolder, Store
from unmask.store.experiments import Experiment, Member, experiment_of
from unmask.store.foreign import ForeignRecord, foreign_of
from unmask.store.result import AccuracyResult, Answers, AnyResult, Environment
from unmask.store.state import state_of
from unmask.store.stopping import stopped
from unmask.store.twins import name_of
from unmask.version import __version__


def gather(
    store: Store,
    experiments: Sequence[str],
    imports: Sequence[str] = (),
    success: SuccessSpec | None = None,
) -> Document:
    """What there is to say of some experiments and imports; criteria are for the imports."""
    parts = [_own(store, name) for name in experiments]
    parts += [_foreign(store, name, success) for name in imports]
    if not parts:
        raise UnmaskError(
            f"There is nothing to report in {store.root}; run a recipe or import summaries first."
        )
    return Document(
        title=", ".join(part.name for part in parts),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        parts=tuple(parts),
    )


def task_parts(store: Store, name: str) -> list[TaskPart]:
    """What there is to say of the tasks of one experiment."""
    return list(_tasks(experiment_table(store, name), name))


def _own(store: Store, name: str) -> ExperimentPart:
    table = experiment_table(store, name)
    written = experiment_of(store, name)
    recipe = planned_recipe(written)
    return _part(
        table,
        hypothesis=recipe.hypothesis if recipe else "",
        expected=recipe.expected if recipe else "",
        attempts=tuple(attempts_of(store, written)),
        runs=tuple(runs_of(store, written)),
        provenance=tuple(provenance_of(table, written)),
        artifacts=tuple(artifacts_of(store, written)),
        superseded=len(written.superseded),
    )


def _foreign(store: Store, name: str, success: SuccessSpec | None) -> ExperimentPart:
    table = import_table(store, name, success)
    return _part(
        table,
        provenance=tuple(provenance_of(table)),
        artifacts=tuple(foreign_artifacts(name, foreign_of(store, name))),
    )


def _part(table: Table, **about: object) -> ExperimentPart:
    (experiment,) = table.experiments
    findings = tuple(run_guards(table))
    judged = verdict(table, experiment.name, findings=findings) if experiment.success else None
    return ExperimentPart(
        experiment=experiment,
        tasks=tuple(_tasks(table, experiment.name)),
        timings=table.timings,
        verdict=judged,
        findings=findings,
        **about,  # type: ignore[arg-type]
    )


def _tasks(table: Table, name: str) -> Iterable[TaskPart]:
    for number, group in enumerate(table.groups(), start=1):
        # An import may bear the name of an experiment.
        kind = "foreign-" if group.experiment.foreign else ""
        yield task_part(table, group, f"{kind}{_anchor(name)}-{number}")


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)


BUDGET = 0.05
"""Loss that the best configuration may have where no criterion says otherwise."""


def task_part(table: Table, group: TaskResults, key: str) -> TaskPart:
    """Everything about one task of an experiment."""
    # A speed belongs to the task it was measured on; the analysis would take one of another task for want of it.
    own = Table(table.experiments, table.entries, tuple(t for t in table.timings if t.task == group.task))
    control = control_of(group)
    comparisons = comparisons_of(own, group)
    lines = [_line(own, group, control, entry, comparisons) for entry in group.entries]
    success = group.experiment.success
    first: Gained = success.by if success and success.task == group.task else "speed"
    sets = [entries for entries in alike(group.entries) if len(entries) > 1]
    return TaskPart(
        key=key,
        group=group,
        lines=tuple(lines),
        control=control,
        comparisons=comparisons,
        planes={by: tuple(frontier(own, group, by)) for by in dict.fromkeys((first, "speed", "work"))},
        curves=tuple(curves(group)),
        equal=tuple(tuple(entry.configuration for entry in same) for same in sets if acts(same[0])),
        baselines=next(
            (tuple(entry.configuration for entry in same) for same in sets if not acts(same[0])), ()
        ),
        budget=success.confirm.drop if success else BUDGET,
    )


def _line(
    table: Table,
    group: TaskResults,
    control: ConfigurationResult | None,
    entry: ConfigurationResult,
    comparisons: Comparisons,
) -> TableLine:
    is_control = entry is control
    compared = control is not None and not is_control
    timing = _timing(table, group, entry)
    # Of what is equal to the control, and was not timed beside it, the control's own time says nothing.
    timed_apart = compared and (
        timing is None or timing.configuration != getattr(control, "configuration", None)
    )
    return TableLine(
        entry=entry,
        is_control=is_control,
        interval=accuracy_interval(entry),
        loss=loss_of(control, entry, comparisons) if control is not None and compared else None,
        skipped=reuse_fraction(entry),
        gains={by: gain for by in COUNTED if control and (gain := counted_gain(by, control, entry))},
        work_a_token=1.0 if is_control else work_ratio(control, entry) if control else None,
        timing=timing,
        speedup=_speedup(table, control, entry, comparisons.level) if timed_apart else None,
    )


def _timing(table: Table, group: TaskResults, entry: ConfigurationResult) -> ConfigurationTiming | None:
    return table.timing(group.experiment.name, entry.configuration, group.task)


def _speedup(
    table: Table, control: ConfigurationResult | None, entry: ConfigurationResult, level: float
) -> Speedup | None:
    if control is None:
        return None
    return speedup_of(table, entry.experiment, entry.configuration, control.configuration, entry.task, level)


def attempts_of(store: Store, experiment: Experiment) -> Iterator[AttemptSpan]:
    """All attempts of an experiment's runs that have a beginning and an end."""
    for member in _once(experiment):
        of = RunFolder(store.runs_folder / member.folder)
        for run in (of, *of.twins()):
            label = member.configuration if run is of else f"{name_of(run)} (twin)"
            for attempt in run.attempts():
                span = _span(member, run, attempt, run.result())
                if span is not None:
                    yield replace(span, label=label)


def runs_of(store: Store, experiment: Experiment) -> Iterator[dict[str, Any]]:
    """One row a run: its name, state, code and machine."""
    for member in _once(experiment):
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result()
        environment = result.environment if result else Environment()
        answers = result.answers if isinstance(result, AccuracyResult) else Answers()
        state = state_of(run)
        yield {
            "id": member.id,
            "folder": member.folder,
            "configuration": member.configuration,
            "task": task_label(member.task, member.limit),
            "state": state.status,
            "reason": state.reason or "",
            "attempts": len(run.attempts()),
            "commit": _commit(environment),
            "host": environment.host or state.host or "",
            "machine": environment.machine or "",
            "seconds": result.seconds if result else None,
            "finished": (result.finished if result else None) or "",
            "answers": (answers.sha256 or "")[:12],
            "resumed": answers.resumed or 0,
            "computed_again": answers.computed_again or 0,
        }


def _once(experiment: Experiment) -> list[Member]:
    """Every run under the name of its own configuration, if that is there, whatever else it stands for."""
    runs: dict[str, Member] = {}
    for member in experiment.members:
        if member.folder not in runs or not member.instead:
            runs[member.folder] = member
    return list(runs.values())


def _commit(environment: Environment) -> str:
    commit = (environment.commit or "")[:10]
    return f"{commit} + changes" if commit and environment.dirty else commit


def _span(member: Member, run: RunFolder, attempt: Attempt, result: AnyResult | None) -> AttemptSpan | None:
    record, failure = attempt.record(), attempt.failure()
    start = _seconds(record.started)
    if result is not None and result.attempt == attempt.number:
        state, stop, note = "done", _seconds(result.finished), ""
    elif (end := stopped(attempt)) is not None:
        state, stop, note = "done", _seconds(end.time), f"{end.rows:,} of {end.of:,} rows: {end.reason}"
    elif failure is not None:
        state, stop, note = "failed", _seconds(failure.time), failure.reason
    else:
        state, stop, note = _unfinished(run, attempt), attempt.last_beat(), _other_kind(run, attempt, result)
    if start is None:
        return None
    return AttemptSpan(
        host=record.host or "unknown host",
        label=member.configuration,
        task=task_label(member.task, member.limit),
        kind=member.kind,
        state=state,
        start=start,
        stop=max(start, stop if stop is not None else start),
        note=note,
    )


def _other_kind(run: RunFolder, attempt: Attempt, result: AnyResult | None) -> str:
    """Why the result holds none of an attempt's answers, where it was computed in another way."""
    mine = attempt.computation()
    last = run.attempt(result.attempt).computation() if result and result.attempt else None
    change = mine.change_to(last) if mine and last else ""
    return f"not taken over: {change}" if change else ""


def _unfinished(run: RunFolder, attempt: Attempt) -> str:
    state = state_of(run)
    return "running" if state.status == "running" and state.attempt == attempt.number else "interrupted"


def _seconds(moment: str | None) -> float | None:
    with suppress(ValueError):
        return datetime.fromisoformat(moment).timestamp() if moment else None
    return None


SHORT = 16
"""Digits of a hash that are shown."""
SHOWN = (
    ("commit", "Code"),
    ("engine", "Engine revision"),
    ("weights", "Weights"),
    ("dtype", "Number format"),
    ("data", "Rows"),
    ("task version", "Task versions"),
    ("lm_eval", "lm-eval"),
    ("torch", "torch"),
    ("machine", "Machine"),
    ("host", "Host"),
)
FEW = 4
"""Values that are listed before the rest is counted."""


def provenance_of(table: Table, written: Experiment | None = None) -> Iterator[tuple[str, str]]:
    """What the results share, and what they do not."""
    if written is not None:
        yield "Recipe", f"{written.name}, SHA-256 {written.recipe_sha256[:SHORT]}, planned {written.planned}"
    results: list[Measured] = [*table.entries, *table.timings]
    for key, name in SHOWN:
        told = _shared_values(_value(result, key) for result in results)
        if told:
            yield name, told


def artifacts_of(store: Store, written: Experiment) -> Iterator[tuple[str, str]]:
    """Folders and files of an experiment, relative to the store."""
    runs = _once(written)
    done = sum((store.runs_folder / member.folder / "result.json").exists() for member in runs)
    yield "Recipe and planned runs", f"experiments/{written.name}/experiment.json"
    yield f"Runs ({done} of {len(runs)} with a result)", "runs/<task>-<policy>-<id>/"
    if any(RunFolder(store.runs_folder / member.folder).twins() for member in runs):
        yield "Twins", "twins/ in the folders of the runs that stand for them"
    yield "Results", "result.json in each run's folder"
    yield "Rows with answers", "attempts/<number>/samples.jsonl in each run's folder"
    yield "Summaries in the older layout", "summary.json in each run's folder"


def foreign_artifacts(name: str, records: Iterable[ForeignRecord]) -> Iterator[tuple[str, str]]:
    """Files of an import."""
    yield f"Imported summaries ({len(list(records))})", f"foreign/{name}/files/"
    yield "What was read from them", f"foreign/{name}/records.json"


def _shared_values(values: Iterable[str | None]) -> str:
    found = Counter(value for value in values if value)
    if len(found) == 1:
        return next(iter(found))
    shown = [f"{value} ({counted(number, 'result')})" for value, number in found.most_common(FEW)]
    return ", ".join(shown) + (f" and {len(found) - FEW} more" if len(found) > FEW else "")


def _value(result: Measured, key: str) -> str | None:
    value: Any = result.provenance.get(key)
    if value is None:
        return None
    if key == "commit":
        return f"{str(value)[:10]}{' with uncommitted changes' if result.provenance.get('dirty') else ''}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(value[name])}" for name in sorted(value)[:FEW]) + (
            f" and {len(value) - FEW} more" if len(value) > FEW else ""
        )
    return _short(value)


def _short(value: Any) -> str:
    text = str(value)
    is_hash = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:SHORT] if is_hash else text
