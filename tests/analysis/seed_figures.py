"""The published figures of the first layer-reuse experiments, typed in as numbers.

From github.com/mgustineli/Fast-dLLM (Apache-2.0): v2/experiments/00_baseline, its results.md and the summaries in its
artifacts (commit fb55582); the ten-row runs are the "post-fix results" of its tasks.md. Node names are replaced by
numbers. Only figures are taken over.
"""

from typing import Any, NamedTuple

MODEL = "Efficient-Large-Model/Fast_dLLM_v2_7B"
GPU = "Quadro RTX 6000"


class Figure(NamedTuple):
    """One published result."""

    task: str
    limit: int | None
    config: str
    accuracy: float
    tokens: int | None
    seconds: float | None
    tokens_per_second: float | None
    commit: str
    dirty: bool
    host: str


PUBLISHED = (
    Figure("gsm8k", None, "k1_first", 0.8043972706595905, 436484, 19189.89, 22.75, "ce2817c", True, "node1"),
    Figure("gsm8k", None, "k1_last", 0.8043972706595905, 436484, 8794.38, 49.63, "ce2817c", False, "node2"),
    Figure("gsm8k", None, "k1_middle", 0.8043972706595905, 436484, 8810.17, 49.54, "ce2817c", True, "node3"),
    Figure("gsm8k", None, "k2_first", 0.7369219105382866, 429539, 10779.62, 39.85, "ce2817c", True, "node2"),
    Figure("gsm8k", None, "k2_last", 0.7376800606520091, 433029, 10688.71, 40.51, "ce2817c", True, "node2"),
    Figure("gsm8k", None, "k2_middle", 0.7361637604245641, 431492, 12888.3, 33.48, "ce2817c", True, "node2"),
    Figure("gsm8k", None, "k3_first", 0.6717210007581501, 438188, 12780.22, 34.29, "ce2817c", True, "node3"),
    Figure("gsm8k", None, "k3_last", 0.6770280515542078, 441934, 12980.48, 34.05, "ce2817c", True, "node3"),
    Figure("gsm8k", None, "k3_middle", 0.6755117513267627, 442062, 13056.24, 33.86, "ce2817c", True, "node3"),
    Figure("ifeval", 5, "k1_first", 1.0, 1651, 66.88, 24.69, "167bffa", True, "node4"),
    Figure(
        "minerva_math", 10, "k1_first", 0.42857142857142855, 50779, 1012.37, 50.16, "3eafa80", False, "node5"
    ),
    Figure(
        "minerva_math", 10, "k1_last", 0.42857142857142855, 50779, 1023.54, 49.61, "3eafa80", False, "node5"
    ),
    Figure(
        "minerva_math", 10, "k1_middle", 0.42857142857142855, 50779, 1023.16, 49.63, "3eafa80", False, "node5"
    ),
    Figure(
        "minerva_math", 10, "k2_first", 0.4142857142857143, 57697, 1332.64, 43.3, "3eafa80", True, "node6"
    ),
    Figure(
        "minerva_math", 10, "k2_last", 0.4142857142857143, 57824, 2951.42, 19.59, "3eafa80", True, "node7"
    ),
    Figure("minerva_math", 10, "k2_middle", 0.4, 57697, 2907.23, 19.85, "3eafa80", True, "node7"),
    Figure(
        "minerva_math", 10, "k3_first", 0.3142857142857143, 59428, 3407.84, 17.44, "3eafa80", True, "node7"
    ),
    Figure("minerva_math", 10, "k3_last", 0.2857142857142857, 59492, 3626.7, 16.4, "3eafa80", True, "node7"),
    Figure(
        "minerva_math", 10, "k3_middle", 0.2571428571428571, 58883, 1561.12, 37.72, "3eafa80", True, "node4"
    ),
    Figure("mmlu", None, "k1_first", 0.6652898447514599, None, None, None, "7f5ff68", True, "node1"),
    Figure("mmlu", None, "k1_last", 0.6652898447514599, None, None, None, "7f5ff68", True, "node8"),
    Figure("mmlu", None, "k1_middle", 0.6652898447514599, None, None, None, "7f5ff68", False, "node3"),
    Figure("mmlu", None, "k2_first", 0.6652898447514599, None, None, None, "7f5ff68", True, "node9"),
    Figure("mmlu", None, "k2_last", 0.6652898447514599, None, None, None, "7f5ff68", True, "node10"),
    Figure("mmlu", None, "k2_middle", 0.6652898447514599, None, None, None, "7f5ff68", True, "node11"),
    Figure("mmlu", None, "k3_first", 0.6652898447514599, None, None, None, "7f5ff68", True, "node11"),
    Figure("mmlu", None, "k3_last", 0.6652898447514599, None, None, None, "7f5ff68", True, "node12"),
    Figure("mmlu", None, "k3_middle", 0.6652898447514599, None, None, None, "7f5ff68", True, "node12"),
)
AFTER_THE_FIX = (
    Figure("gsm8k", 10, "k1_first", 0.6, None, None, 47.52, "postfix", True, "node9"),
    Figure("gsm8k", 10, "k2_first", 0.7, None, None, 36.74, "postfix", True, "node9"),
    Figure("gsm8k", 10, "k3_first", 0.6, None, None, 37.87, "postfix", True, "node9"),
)
GROUP_ROWS = {
    "mmlu": {"acc,none": 0.6652898447514599, "acc_stderr,none": 0.0037984279055217093},
    "mmlu_humanities": {"acc,none": 0.6031880977683316, "acc_stderr,none": 0.006753529295313333},
    "mmlu_other": {"acc,none": 0.7129063405214033, "acc_stderr,none": 0.007834020036700173},
    "mmlu_social_sciences": {"acc,none": 0.7673058173545662, "acc_stderr,none": 0.007497102166073303},
    "mmlu_stem": {"acc,none": 0.6114811290834127, "acc_stderr,none": 0.008455031432018515},
}
"""The same in all nine configurations."""


def summary(figure: Figure) -> dict[str, Any]:
    """A figure in the layout of the files it was published in."""
    speed: dict[str, Any] = {}
    if figure.tokens_per_second is not None:
        speed = {
            "tokens_generated": figure.tokens,
            "total_time_s": figure.seconds,
            "tokens_per_s": figure.tokens_per_second,
        }
    k, subset = figure.config.removeprefix("k").split("_")
    groups = {"group_results": GROUP_ROWS} if figure.task == "mmlu" else {}
    return {
        "task": figure.task,
        "config": figure.config,
        "accuracy": figure.accuracy,
        "throughput": speed,
        "gpu_info": {"gpu_name": GPU},
        "git": {"commit": figure.commit, "dirty": figure.dirty},
        "environment": {"hostname": figure.host, "torch_version": "2.9.1+cu128"},
        "model_args": {"model_path": MODEL, "reuse_k": int(k), "layer_subset": subset},
        "eval_params": {"num_fewshot": 0, "batch_size": "1", "limit": figure.limit},
        **groups,
    }


def path_of(figure: Figure) -> str:
    """Where the summary lies in the published tree."""
    folder = figure.task if figure.limit is None else f"{figure.task}_limit_{figure.limit}"
    return f"{folder}/{figure.config}/summary.json"
