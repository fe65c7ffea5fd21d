"""From an evaluation to the records of a run (docs/experiments.md): its result and its rows."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import metric_of
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.run import Outcome
from unmask.store.attempt import Sample
from unmask.store.result import AccuracyResult, Answers, Effect, Model, Subtask, Totals, stderr_key

DIGITS = 6
"""Decimals of a log likelihood that count when two runs' answers are compared."""


def result_of(outcome: Outcome, lm: UnmaskLM, task: str, metric: str | None) -> AccuracyResult:
    """What the evaluation of one task says; the worker adds run, attempt and environment."""
    document = outcome.document
    entry, details = document["tasks"][task], lm.details.values()
    return AccuracyResult(
        task=task,
        **_headline(entry, metric),
        rows=entry["rows"],
        rows_of_the_set=entry["rows_of_the_set"],
        num_fewshot=entry["num_fewshot"],
        metrics={name: value for name, value in entry["all_metrics"].items() if value != "N/A"},
        subtasks=msgspec.convert(document["subtasks"], dict[str, Subtask]),
        effect=msgspec.convert(entry["effect"], dict[str, Effect]),
        answers=Answers(
            sha256=answers_sha256(outcome.samples),
            count=sum(len(_once(rows)) for rows in outcome.samples.values()),
            tokens=sum(tokens for tokens, _ in details),
            truncated=sum(finish in ("length", "context") for _, finish in details),
            resumed=lm.journal.resumed,
        ),
        speed=msgspec.convert(document["speed"], Totals),
        model=msgspec.convert(document["model"], Model),
        sandbox_gaps=document["sandbox_gaps"],
    )


def _headline(entry: Mapping[str, Any], metric: str | None) -> dict[str, Any]:
    if metric is None or metric == entry["metric"]:
        return {name: entry[name] for name in ("metric", "value", "stderr")}
    values = entry["all_metrics"]
    if metric not in values:
        known = [name for name in values if "_stderr," not in name]
        raise UnmaskError(f"The results hold no metric {metric}; they hold {', '.join(known)}.")
    error = values.get(stderr_key(metric))
    return {
        "metric": metric,
        "value": float(values[metric]),
        "stderr": float(error) if isinstance(error, float) else None,
    }


def samples_of(outcome: Outcome, lm: UnmaskLM, metric: str | None) -> Iterator[Sample]:
    """Every row once, with its metrics under all filters."""
    for task, rows in outcome.samples.items():
        wanted = metric or metric_of(task)
        metrics: dict[int, dict[str, Any]] = {}
        for row in rows:
            values = metrics.setdefault(row["doc_id"], {})
            values.update({f"{name},{row['filter']}": _plain(row[name]) for name in row["metrics"]})
        for row in _once(rows):
            yield _sample(task, row, metrics[row["doc_id"]], wanted, lm)


def _sample(task: str, row: Mapping[str, Any], metrics: dict[str, Any], wanted: str, lm: UnmaskLM) -> Sample:
    arguments, answers = row["arguments"], row["resps"]
    scores = _scores(answers)
    tokens, finish = lm.details.get((task, row["doc_id"], 0), (None, None))
    correct = metrics.get(wanted)
    if scores is None:
        answer = str(answers[0][0])
    else:
        best = max(range(len(scores)), key=scores.__getitem__)
        answer = str(arguments[best][1]).strip()
    return Sample(
        id=f"{task}/{row['doc_id']}",
        task=task,
        doc_id=row["doc_id"],
        correct=float(correct) if isinstance(correct, int | float) else None,
        metrics=metrics,
        prompt=str(arguments[0][0]),
        answer=answer,
        target=str(row["target"]),
        tokens=tokens,
        finish=finish,
        scores=None if scores is None else list(scores),
    )


def answers_sha256(samples: Mapping[str, list[dict[str, Any]]]) -> str:
    """Equal for two runs that gave equal answers to the rows in their order."""
    total = hashlib.sha256()
    for task in sorted(samples):
        for row in _once(samples[task]):
            scores = _scores(row["resps"])
            told = row["resps"] if scores is None else [round(score, DIGITS) for score in scores]
            total.update(json.dumps([task, row["doc_id"], told], default=str).encode() + b"\n")
    return total.hexdigest()


def _once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a row: lm-eval repeats a row for every filter."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["doc_id"], row)
    return [found[number] for number in sorted(found)]


def _scores(answers: list[Any]) -> list[float] | None:
    """Log likelihoods of a row's options; None for a generation."""
    first = answers[0][0]
    if isinstance(first, str):
        return None
    return [
        float(answer[0][0]) if isinstance(answer[0], tuple | list) else float(answer[0]) for answer in answers
    ]


def _plain(value: Any) -> Any:
    """A metric as plain data."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(value) if hasattr(value, "__float__") else str(value)
