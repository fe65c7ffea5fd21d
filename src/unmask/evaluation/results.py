"""From an evaluation to its result: lm-eval's dictionary becomes an AccuracyResult and Samples, with its totals.

Metrics are taken from the value that lm-eval returns, never from files it has written. Counted work comes from the
proof that the adapter keeps (`proof.py`); where results are kept is not known here.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean
from typing import Any

import msgspec

import unmask
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import groups, headline, members_of, metric_of
from unmask.evaluation.harness import Options, evaluate_tasks
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.task_data import Loaded, tasks_of
from unmask.store.attempt import Sample
from unmask.store.foreign import stderr_key
from unmask.store.result import (
    AccuracyResult,
    Answers,
    Effect,
    Model,
    SharedWork,
    Subtask,
    Totals,
)

DIGITS = 6
"""Decimals of a log likelihood that count when two runs' answers are compared."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation gives: the document of `unmask eval`, and lm-eval's samples."""

    document: dict[str, Any]
    samples: dict[str, list[dict[str, Any]]]
    """lm-eval's samples by task, each with prompt, answer and metrics, once for every filter."""


def evaluate(lm: UnmaskLM, loaded: Loaded, options: Options) -> Evaluation:
    """Run all tasks and gather their figures."""
    if options.chat and not lm.engine.tokenizer.has_chat_template:
        raise UnmaskError("The checkpoint has no chat template; leave out --chat.")
    _check_estimator(lm, loaded, options)
    returned = _timed(lm, loaded, options)
    info = lm.get_model_info()
    if lm.stderrs:
        info["likelihood_stderr"] = fmean(lm.stderrs)
    effect, shared, speed = info.pop("effect"), info.pop("shared"), info.pop("speed")
    document = {
        "unmask": unmask.__version__,
        "lm_eval": version("lm_eval"),
        "tasks": {name: _task_entry(name, returned, loaded, lm) for name in loaded.names},
        "subtasks": _subtasks(returned, loaded, lm),
        "model": info,
        "options": {
            "limit": options.limit,
            "num_fewshot": options.num_fewshot,
            "chat": options.chat,
            "system_instruction": options.system_instruction,
            "generation": dict(options.generation or {}),
        },
        "effect": effect,
        "shared": shared,
        "speed": {"note": "totals of an accuracy run: no warm-up, no repeats", **speed},
    }
    return Evaluation(document, returned.get("samples", {}))


def _check_estimator(lm: UnmaskLM, loaded: Loaded, options: Options) -> None:
    """Refuse at once what the engine would refuse after other tasks have run for hours."""
    if lm.estimator != "canvas":
        return
    for task in tasks_of(loaded.objects):
        if task.OUTPUT_TYPE != "multiple_choice":
            continue
        row = task.eval_docs[0]
        delimiter = "" if options.chat else task.config.target_delimiter
        for choice in task.doc_to_choice(row):
            tokens = len(lm.encoded("Answer:", delimiter + choice)[1])
            if tokens > 1:
                raise UnmaskError(
                    f"canvas scores single tokens, but {choice!r} of {task.task_name} has {tokens}; use the "
                    "estimator chain."
                )


def _timed(lm: UnmaskLM, loaded: Loaded, options: Options) -> dict[str, Any]:
    """lm-eval's results; seconds that it spends outside of the model are counted apart."""
    before = lm.meter.now()
    returned = evaluate_tasks(lm, loaded, options)
    inside = lm.meter.decoding.seconds + lm.meter.scoring.seconds + lm.meter.phases.get("tokenising", 0.0)
    lm.meter.phases["prompts_and_checking"] = max(0.0, lm.meter.now() - before - inside)
    return returned


def _task_entry(name: str, returned: Mapping[str, Any], loaded: Loaded, lm: UnmaskLM) -> dict[str, Any]:
    """The figures of one task, or of one group of tasks."""
    row = (returned.get("groups") or {}).get(name) or returned["results"][name]
    members = groups()[name].members if name in groups() else (name,)
    counted = returned.get("n-samples", {})
    return {
        **headline(name, row),
        "rows": sum(counted.get(member, {}).get("effective", 0) for member in members),
        "rows_of_the_set": sum(loaded.sizes[member] for member in members),
        "num_fewshot": sorted({returned["n-shot"][member] for member in members}),
        "version": returned.get("versions", {}).get(name),
        "all_metrics": {key: value for key, value in row.items() if "," in key},
        "effect": msgspec.to_builtins(lm.proof.of(members)),
        "shared": msgspec.to_builtins(lm.proof.shared(members)),
        "sandbox": loaded.sandbox if any(source.runs_code for source in members_of(name)) else None,
    }


def _subtasks(returned: Mapping[str, Any], loaded: Loaded, lm: UnmaskLM) -> dict[str, Any]:
    """The figures of the tasks of groups."""
    return {
        task: {
            **headline(task, returned["results"][task]),
            "rows": returned.get("n-samples", {}).get(task, {}).get("effective"),
            "reuse_fraction": {path: effect.reuse_fraction for path, effect in lm.proof.of([task]).items()},
        }
        for task in loaded.sizes
        if task not in loaded.names and metric_of(task) in returned["results"].get(task, {})
    }


# The result and the samples of a run.


def result_of(evaluation: Evaluation, lm: UnmaskLM, task: str, metric: str | None) -> AccuracyResult:
    """The result of one task; the worker adds run, attempt and environment."""
    document = evaluation.document
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
        shared=msgspec.convert(entry["shared"], dict[str, SharedWork]),
        likelihood_stderr=fmean(lm.stderrs) if lm.stderrs else msgspec.UNSET,
        answers=Answers(
            sha256=answers_sha256(evaluation.samples),
            count=sum(len(_once(rows)) for rows in evaluation.samples.values()),
            tokens=sum(tokens for tokens, _ in details),
            truncated=sum(finish in ("length", "context") for _, finish in details),
            resumed=lm.journal.resumed,
            computed_again=lm.journal.computed_again,
        ),
        speed=msgspec.convert(document["speed"], Totals),
        model=msgspec.convert(document["model"], Model),
        sandbox=entry["sandbox"] or msgspec.UNSET,
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


def samples_of(evaluation: Evaluation, lm: UnmaskLM, metric: str | None) -> Iterator[Sample]:
    """Every sample once, with its metrics under all filters."""
    for task, rows in evaluation.samples.items():
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
        asked=lm.asked(arguments[0][1]) if scores is None else msgspec.UNSET,
        scores=None if scores is None else list(scores),
    )


def answers_sha256(samples: Mapping[str, list[dict[str, Any]]]) -> str:
    """A digest that is equal for two runs with equal answers to the same samples in the same order."""
    total = hashlib.sha256()
    for task in sorted(samples):
        for row in _once(samples[task]):
            scores = _scores(row["resps"])
            answers = row["resps"] if scores is None else [round(score, DIGITS) for score in scores]
            total.update(json.dumps([task, row["doc_id"], answers], default=str).encode() + b"\n")
    return total.hexdigest()


def _once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every sample once, by its number: lm-eval repeats a sample for every filter."""
    by_number: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_number.setdefault(row["doc_id"], row)
    return [by_number[number] for number in sorted(by_number)]


def _scores(answers: list[Any]) -> list[float] | None:
    """Log likelihoods of a sample's options; None for a generated answer."""
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
