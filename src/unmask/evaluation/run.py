"""One evaluation: loaded tasks through a model, and everything a reader needs to trust the numbers.

Metrics are taken from the value that lm-eval returns, never from files it has written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import msgspec

import unmask
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import groups, headline, metric_of
from unmask.evaluation.harness import Options, evaluate_tasks
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.sandbox import isolation
from unmask.evaluation.task_data import Loaded, tasks_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation leaves behind."""

    document: dict[str, Any]
    samples: dict[str, list[dict[str, Any]]]
    """Every row with prompt, answer and metrics, by task."""


def evaluate(lm: UnmaskLM, loaded: Loaded, options: Options, allow_code: bool = False) -> Outcome:
    """Run all tasks and sum them up."""
    if options.chat and not lm.engine.tokenizer.has_chat_template:
        raise UnmaskError("The checkpoint has no chat template; leave out --chat.")
    _check_estimator(lm, loaded, options)
    returned = _timed(lm, loaded, options, allow_code)
    info = lm.get_model_info()
    effect, speed = info.pop("effect"), info.pop("speed")
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
        "sandbox_gaps": isolation().gaps if allow_code else None,
        "effect": effect,
        "speed": {"note": "totals of an accuracy run: no warm-up, no repeats", **speed},
    }
    return Outcome(document, returned.get("samples", {}))


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


def _timed(lm: UnmaskLM, loaded: Loaded, options: Options, allow_code: bool) -> dict[str, Any]:
    """lm-eval's results; what it takes beside the model is told apart."""
    before = lm.meter.clock()
    returned = evaluate_tasks(lm, loaded, options, allow_code)
    inside = lm.meter.decoding.seconds + lm.meter.scoring.seconds + lm.meter.phases.get("tokenising", 0.0)
    lm.meter.phases["prompts_and_checking"] = max(0.0, lm.meter.clock() - before - inside)
    return returned


def _task_entry(name: str, returned: Mapping[str, Any], loaded: Loaded, lm: UnmaskLM) -> dict[str, Any]:
    """One task or group as it was asked for."""
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
    }


def _subtasks(returned: Mapping[str, Any], loaded: Loaded, lm: UnmaskLM) -> dict[str, Any]:
    """The tasks of groups, each with its own number."""
    return {
        task: {
            **headline(task, returned["results"][task]),
            "rows": returned.get("n-samples", {}).get(task, {}).get("effective"),
            "reuse_fraction": {path: effect.reuse_fraction for path, effect in lm.proof.of([task]).items()},
        }
        for task in loaded.sizes
        if task not in loaded.names and metric_of(task) in returned["results"].get(task, {})
    }
