"""Entries and timings of one's own runs, from the results in the store (docs/result.md)."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.analysis.records import Entry, Timing
from unmask.store.attempt import Attempt
from unmask.store.result import AccuracyResult, AnyResult, CountedWork, TimingResult


def entry_of(
    experiment: str,
    configuration: str,
    result: AccuracyResult,
    folder: Path | None = None,
    shape: Mapping[str, int] | None = None,
) -> Entry:
    """An accuracy run's result as an entry; `shape` is that of the model where the result does not say."""
    identity, answers, decoding = result.identity, result.answers, result.speed.decoding
    attempt = Attempt(folder / "attempts" / result.attempt) if folder and result.attempt else None
    return Entry(
        experiment=experiment,
        configuration=configuration,
        task=result.task,
        limit=(identity.get("task") or {}).get("limit"),
        policy=identity.get("policy") or {},
        decode=identity.get("decode") or {},
        value=float(result.value),
        stderr=result.stderr,
        metric=result.metric,
        rows=result.rows,
        answers=answers.sha256,
        tokens=answers.tokens,
        truncated=answers.truncated,
        resumed=answers.resumed or 0,
        effect=result.effect,
        subtasks=result.subtasks,
        seconds=result.seconds,
        run_tokens_per_second=decoding.tokens_per_second if decoding else None,
        provenance=_provenance(result),
        layers=_layers(result.effect.values()),
        shape=result.model.shape or shape,
        run=result.id,
        samples=attempt.samples_file if attempt else None,
    )


def timings_of(experiment: str, result: TimingResult) -> Iterator[Timing]:
    """All configurations of a timing run's result."""
    settings = result.identity.get("configurations") or {}
    for name, measured in result.configurations.items():
        setting = settings.get(name) or {}
        yield Timing(
            experiment=experiment,
            configuration=name,
            task=result.task,
            run=result.id,
            control=result.control,
            policy=setting.get("policy") or {},
            decode=setting.get("decode") or {},
            path=result.path,
            tokens=measured.tokens or 0,
            requests=measured.requests or 0,
            prompts=result.prompts or result.identity.get("prompts") or 0,
            forwards=measured.forwards or 0,
            seconds=tuple(float(seconds) for seconds in measured.seconds),
            tokens_per_second=measured.tokens_per_second,
            requests_per_second=measured.requests_per_second,
            speedup=measured.speedup,
            effect={result.path: measured.effect},
            answers=measured.answers_sha256,
            conditions=result.conditions,
            provenance=_provenance(result),
            cores=result.environment.cores,
            layers=_layers([measured.effect]),
        )


def _provenance(result: AnyResult) -> dict[str, Any]:
    """What must be the same for two results to be comparable, and where they come from."""
    identity, environment = result.identity, result.environment
    task = identity.get("task") or {}
    return {
        "weights": identity.get("weights"),
        "engine": identity.get("engine"),
        "dtype": environment.dtype or identity.get("dtype"),
        "data": task.get("rows_sha256"),
        "task version": task.get("version"),
        "lm_eval": task.get("lm_eval"),
        "commit": environment.commit,
        "dirty": environment.dirty,
        "diff": environment.diff_sha256,
        "machine": environment.machine,
        "device": environment.device,
        "host": environment.host,
        "torch": environment.packages.get("torch"),
    }


def _layers(counted: Iterable[CountedWork]) -> int | None:
    return next((len(work.layer_calls) for work in counted if work.layer_calls), None)
