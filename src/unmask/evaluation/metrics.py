"""The one number by which each task is known, by its name in lm-eval's results.

A results row also holds sizes, standard errors and other metrics, so the number is never taken by its
place in the row.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from unmask.errors import UnmaskError

METRICS = (
    ("gsm8k*", "exact_match,flexible-extract"),
    ("mmlu*_generative", "exact_match,get_response"),
    ("mmlu*", "acc,none"),
    ("minerva_math*", "math_verify,none"),
    ("ifeval", "prompt_level_strict_acc,none"),
    ("humaneval*", "pass@1,create_test"),
    ("mbpp_instruct", "pass_at_1,extract_code"),
    ("mbpp", "pass_at_1,none"),
    ("gpqa_*_generative_n_shot", "exact_match,flexible-extract"),
    ("gpqa_*", "acc,none"),
    ("unmask_arith*", "exact_match,strict-match"),
    ("unmask_instruct", "exact_match,none"),
    ("unmask_choice*", "acc,none"),
)
"""Patterns of task names, the most particular first, and the metric that stands for them."""


def metric_of(task: str) -> str:
    """The metric that stands for a task or group."""
    for pattern, metric in METRICS:
        if fnmatchcase(task, pattern):
            return metric
    raise UnmaskError(
        f"No metric is named for the task {task}; add it to the table in evaluation/metrics.py."
    )


def headline(task: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Name, value and standard error of a task's metric, taken from its row of lm-eval's results."""
    metric = metric_of(task)
    if metric not in row:
        raise UnmaskError(
            f"lm-eval's results of {task} hold no {metric}; they hold {', '.join(sorted(row))}."
        )
    name, _, filtered = metric.partition(",")
    error = row.get(f"{name}_stderr,{filtered}")
    return {
        "metric": metric,
        "value": float(row[metric]),
        "stderr": float(error) if isinstance(error, float) else None,
    }
