"""Entries and timings of one's own runs, from the records in the store (docs/experiments.md)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.analysis.records import Entry, Timing


def entry_of(
    experiment: str,
    configuration: str,
    result: Mapping[str, Any],
    folder: Path | None = None,
    shape: Mapping[str, int] | None = None,
) -> Entry:
    """An accuracy run's result as an entry; `shape` is that of the model where the result does not say."""
    identity = _part(result, "identity")
    task, answers, effect = _part(identity, "task"), _part(result, "answers"), _part(result, "effect")
    decoding = _part(_part(result, "speed"), "decoding")
    attempt = result.get("attempt")
    return Entry(
        experiment=experiment,
        configuration=configuration,
        task=str(result["task"]),
        limit=task.get("limit"),
        policy=_part(identity, "policy"),
        decode=_part(identity, "decode"),
        value=float(result["value"]),
        stderr=result.get("stderr"),
        metric=result.get("metric"),
        rows=result.get("rows"),
        answers=answers.get("sha256"),
        tokens=answers.get("tokens"),
        truncated=answers.get("truncated"),
        resumed=int(answers.get("resumed") or 0),
        effect=effect,
        subtasks=_part(result, "subtasks"),
        seconds=result.get("seconds"),
        run_tokens_per_second=decoding.get("tokens_per_second"),
        provenance=_provenance(identity, result),
        layers=_layers(effect),
        shape=_part(result, "model").get("shape") or shape,
        run=result.get("id"),
        samples=folder / "attempts" / str(attempt) / "samples.jsonl" if folder and attempt else None,
    )


def timings_of(experiment: str, result: Mapping[str, Any]) -> Iterator[Timing]:
    """All configurations of a timing run's result."""
    identity = _part(result, "identity")
    settings, environment = _part(identity, "configurations"), _part(result, "environment")
    for name, measured in _part(result, "configurations").items():
        effect = _part(measured, "effect")
        setting = _part(settings, name)
        yield Timing(
            experiment=experiment,
            configuration=name,
            task=str(result["task"]),
            run=str(result["id"]),
            control=str(result["control"]),
            policy=_part(setting, "policy"),
            decode=_part(setting, "decode"),
            path=str(result.get("path") or "generation"),
            tokens=int(measured.get("tokens") or 0),
            requests=int(measured.get("requests") or 0),
            prompts=int(result.get("prompts") or identity.get("prompts") or 0),
            forwards=int(measured.get("forwards") or 0),
            seconds=tuple(float(value) for value in measured.get("seconds") or ()),
            tokens_per_second=measured.get("tokens_per_second"),
            requests_per_second=measured.get("requests_per_second"),
            speedup=measured.get("speedup"),
            effect=effect if "flops" not in effect else {str(result.get("path")): effect},
            answers=measured.get("answers_sha256"),
            conditions=_part(result, "conditions"),
            provenance=_provenance(identity, result),
            cores=environment.get("cores"),
            layers=_layers(effect),
        )


def _provenance(identity: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for two results to be comparable, and where they come from."""
    environment, task = _part(result, "environment"), _part(identity, "task")
    gpus = environment.get("gpus") or []
    return {
        "weights": identity.get("weights"),
        "engine": identity.get("engine"),
        "dtype": environment.get("dtype") or identity.get("dtype"),
        "data": task.get("rows_sha256"),
        "task version": task.get("version"),
        "lm_eval": task.get("lm_eval"),
        "commit": environment.get("commit"),
        "dirty": environment.get("dirty"),
        "diff": environment.get("diff_sha256"),
        "machine": gpus[0].get("name") if gpus else environment.get("cpu"),
        "device": environment.get("device"),
        "host": environment.get("host"),
        "torch": _part(environment, "packages").get("torch"),
    }


def _layers(effect: Mapping[str, Any]) -> int | None:
    for part in (effect, *effect.values()):
        calls = part.get("layer_calls") if isinstance(part, Mapping) else None
        if calls:
            return len(calls)
    return None


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
