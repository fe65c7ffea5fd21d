"""Runs and their attempts as the store has them: who ran what, where and when."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from unmask.report.document import AttemptSpan
from unmask.spec.sweep import task_label
from unmask.store import Attempt, RunFolder, Store
from unmask.store.experiments import Experiment, Member
from unmask.store.result import AccuracyResult, Answers, AnyResult, Environment
from unmask.store.state import state_of


def attempts_of(store: Store, experiment: Experiment) -> Iterator[AttemptSpan]:
    """All attempts of an experiment's runs that have a beginning and an end."""
    for member in experiment.members:
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result()
        for attempt in run.attempts():
            span = _span(member, run, attempt, result)
            if span is not None:
                yield span


def runs_of(store: Store, experiment: Experiment) -> Iterator[dict[str, Any]]:
    """One row a run: its name, state, code and machine."""
    for member in experiment.members:
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
        }


def _commit(environment: Environment) -> str:
    commit = (environment.commit or "")[:10]
    return f"{commit} + changes" if commit and environment.dirty else commit


def _span(member: Member, run: RunFolder, attempt: Attempt, result: AnyResult | None) -> AttemptSpan | None:
    record, failure = attempt.record(), attempt.failure()
    start = _seconds(record.started)
    if result is not None and result.attempt == attempt.number:
        state, stop, note = "done", _seconds(result.finished), ""
    elif failure is not None:
        state, stop, note = "failed", _seconds(failure.time), failure.reason
    else:
        state, stop, note = _unfinished(run, attempt), attempt.last_beat(), ""
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


def _unfinished(run: RunFolder, attempt: Attempt) -> str:
    state = state_of(run)
    return "running" if state.status == "running" and state.attempt == attempt.number else "interrupted"


def _seconds(moment: str | None) -> float | None:
    with suppress(ValueError):
        return datetime.fromisoformat(moment).timestamp() if moment else None
    return None
