"""Runs and their attempts as the store has them: who ran what, where and when."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from unmask.report.document import AttemptSpan
from unmask.spec.sweep import task_label
from unmask.store import Attempt, RunFolder, Store
from unmask.store.experiments import Experiment, Member
from unmask.store.state import state_of


def attempts_of(store: Store, experiment: Experiment) -> Iterator[AttemptSpan]:
    """All attempts of an experiment's runs that have a beginning and an end."""
    for member in experiment.members:
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result() or {}
        for attempt in run.attempts():
            span = _span(member, run, attempt, result)
            if span is not None:
                yield span


def runs_of(store: Store, experiment: Experiment) -> Iterator[dict[str, Any]]:
    """One row a run: its name, state, code and machine."""
    for member in experiment.members:
        run = RunFolder(store.runs_folder / member.folder)
        result = run.result() or {}
        environment = result.get("environment") or {}
        gpus = environment.get("gpus") or []
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
            "host": environment.get("host") or state.host or "",
            "machine": (gpus[0].get("name") if gpus else environment.get("cpu")) or "",
            "seconds": result.get("seconds"),
            "finished": result.get("finished") or "",
            "answers": str((result.get("answers") or {}).get("sha256") or "")[:12],
            "resumed": (result.get("answers") or {}).get("resumed") or 0,
        }


def _commit(environment: dict[str, Any]) -> str:
    commit = str(environment.get("commit") or "")[:10]
    return f"{commit} + changes" if commit and environment.get("dirty") else commit


def _span(member: Member, run: RunFolder, attempt: Attempt, result: dict[str, Any]) -> AttemptSpan | None:
    record, failure = attempt.record(), attempt.failure()
    start = _seconds(record.get("started"))
    if result.get("attempt") == attempt.number:
        state, stop, note = "done", _seconds(result.get("finished")), ""
    elif failure is not None:
        state, stop, note = "failed", _seconds(failure.get("time")), str(failure.get("reason") or "")
    else:
        state, stop, note = _unfinished(run, attempt), attempt.last_beat(), ""
    if start is None:
        return None
    return AttemptSpan(
        host=str(record.get("host") or "unknown host"),
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


def _seconds(moment: object) -> float | None:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(str(moment)).timestamp() if moment else None
    return None
