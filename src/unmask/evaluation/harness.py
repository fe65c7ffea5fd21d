"""Puts loaded tasks to a model by lm-eval's rules and returns its results.

What lm-eval's `simple_evaluate` does around `evaluate` is done here, with its seeds, except that it also
spends ten seconds describing the machine.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.evaluation.preflight import Loaded
from unmask.evaluation.remarks import quiet
from unmask.evaluation.templates import compiled_once

PYTHON_SEED, OTHER_SEED = 0, 1234
"""lm-eval's defaults."""
BOOTSTRAPS = 1000
"""Resamples behind the standard error of metrics that are no means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How tasks are put to the model."""

    limit: int | None = None
    """Rows of each task; None takes all."""
    num_fewshot: int | None = None
    """None takes each task's own number; tasks that fix it at 0 keep it."""
    chat: bool = False
    """Whether prompts go through the chat template, examples as turns of their own."""
    system_instruction: str | None = None
    generation: Mapping[str, Any] | None = None
    """Generation arguments that win over the tasks' own."""


def evaluate_tasks(lm: Any, loaded: Loaded, options: Options, allow_code: bool = False) -> dict[str, Any]:
    """lm-eval's results and samples for all tasks."""
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    random.seed(PYTHON_SEED)
    np.random.seed(OTHER_SEED)
    tasks = TaskManager(include_defaults=False).load(list(loaded.objects))
    for task in tasks["tasks"].values():
        _set_up(task, options)
    with quiet(), compiled_once():
        found: dict[str, Any] = evaluate(
            lm=lm,
            task_dict=tasks,
            limit=options.limit,
            bootstrap_iters=BOOTSTRAPS,
            system_instruction=options.system_instruction,
            apply_chat_template=options.chat,
            fewshot_as_multiturn=options.chat,
            confirm_run_unsafe_code=allow_code,
        )
    return found


def _set_up(task: Any, options: Options) -> None:
    if options.generation and task.get_config("output_type") == "generate_until":
        task.set_config(key="generation_kwargs", value=dict(options.generation), update=True)
    own = task.get_config("num_fewshot")
    if own is None or (options.num_fewshot is not None and own != 0):
        task.set_config(key="num_fewshot", value=options.num_fewshot or 0)
    task.set_fewshot_seed(seed=OTHER_SEED)
