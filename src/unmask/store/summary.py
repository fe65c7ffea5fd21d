"""An accuracy run in the layout of older scripts: summary.json as the first experiments wrote it.

Knows both layouts. A field that the older layout has no honest value for is left empty: a run that took answers
over from an earlier attempt has no throughput.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from unmask.spec import PolicySpec, known_policy
from unmask.store.result import AccuracyResult, Environment, Subtask, stderr_key


def summary_of(result: AccuracyResult, configuration: str, experiment: str | None) -> dict[str, Any]:
    """The summary of a result under the name its configuration has in an experiment."""
    environment = result.environment
    return {
        "task": result.task,
        "config": configuration,
        "timestamp": _timestamp(result.finished),
        "accuracy": result.value,
        "throughput": _throughput(result),
        "gpu_info": _gpu_info(environment),
        "git": {"commit": environment.commit, "branch": None, "dirty": environment.dirty},
        "environment": {
            "python_version": environment.python,
            "torch_version": environment.packages.get("torch"),
            "hostname": environment.host,
            "slurm_job_id": environment.slurm.get("job"),
        },
        "group_results": _group_results(result),
        "model_args": _model_args(result, experiment),
        "eval_params": _eval_params(result),
    }


def summary_text(summary: Mapping[str, Any]) -> str:
    """A summary as the older scripts wrote it: indented, in the order of its fields."""
    return json.dumps(summary, indent=2, allow_nan=False) + "\n"


def _timestamp(finished: str | None) -> str | None:
    """`2026-11-18T02:00:00+00:00` as `20261118_020000`."""
    try:
        return datetime.fromisoformat(finished or "").strftime("%Y%m%d_%H%M%S")
    except ValueError:
        return None


def _throughput(result: AccuracyResult) -> dict[str, Any]:
    decoding = result.speed.decoding
    seconds = decoding.prefill_seconds + decoding.decode_seconds if decoding else 0.0
    if decoding is None or not seconds or result.answers.resumed:
        return {}
    return {
        "tokens_generated": decoding.tokens,
        "total_time_s": round(seconds, 2),
        "tokens_per_s": round(decoding.tokens / seconds, 2),
    }


def _gpu_info(environment: Environment) -> dict[str, Any]:
    if not environment.gpus or not (environment.device or "").startswith("cuda"):
        return {"gpu_available": False}
    gpu = environment.gpus[0]
    return {
        "gpu_available": True,
        "gpu_name": gpu.name,
        "gpu_total_vram_gb": gpu.memory_gb,
        "cuda_device": 0,
        "cuda_version": environment.cuda,
        "driver_version": gpu.driver,
    }


def _group_results(result: AccuracyResult) -> dict[str, Any]:
    """lm-eval's rows of the task and of its subtasks; the first names the metric that `accuracy` is."""
    task = result.task
    rows = {task: {**_row(result), **result.metrics, "alias": task}}
    for name, subtask in result.subtasks.items():
        rows[name] = {**_row(subtask), "alias": f" - {name.removeprefix(f'{task}_').replace('_', ' ')}"}
    return rows


def _row(figures: AccuracyResult | Subtask) -> dict[str, Any]:
    metric = str(figures.metric)
    return {metric: figures.value, stderr_key(metric): figures.stderr}


def _model_args(result: AccuracyResult, experiment: str | None) -> dict[str, Any]:
    policy, decode = result.identity.get("policy") or {}, result.identity.get("decode") or {}
    spec = known_policy(policy)
    older = spec.older_names if spec else PolicySpec().older_names
    return {
        "model_path": result.model.checkpoint,
        **older,
        "use_block_cache": decode.get("block_cache"),
        "show_speed": True,
        "experiment_name": experiment,
        "threshold": decode.get("threshold"),
        "policy": dict(policy),
        "decode": dict(decode),
        "weights_sha256": result.identity.get("weights"),
        "run_id": result.id,
    }


def _eval_params(result: AccuracyResult) -> dict[str, Any]:
    task = result.identity.get("task") or {}
    limit, batch = task.get("limit"), result.environment.batch_size
    used = result.num_fewshot
    return {
        "num_fewshot": used[0] if len(used) == 1 else task.get("num_fewshot"),
        "batch_size": None if batch is None else str(batch),
        "limit": None if limit is None else float(limit),
        "rows": result.rows,
    }
