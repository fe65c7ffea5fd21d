"""An accuracy run in the layout of older scripts: summary.json as the first experiments wrote it.

Knows both layouts. A field that the older layout has no honest value for is left empty: a run that took answers
over from an earlier attempt has no throughput.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def summary_of(
    result: Mapping[str, Any], identity: Mapping[str, Any], configuration: str, experiment: str | None
) -> dict[str, Any]:
    """The summary of a result under the name its configuration has in an experiment."""
    environment = _part(result, "environment")
    return {
        "task": result["task"],
        "config": configuration,
        "timestamp": _timestamp(result.get("finished")),
        "accuracy": result.get("value"),
        "throughput": _throughput(result),
        "gpu_info": _gpu_info(environment),
        "git": {"commit": environment.get("commit"), "branch": None, "dirty": environment.get("dirty")},
        "environment": {
            "python_version": environment.get("python"),
            "torch_version": _part(environment, "packages").get("torch"),
            "hostname": environment.get("host"),
            "slurm_job_id": _part(environment, "slurm").get("job"),
        },
        "group_results": _group_results(result),
        "model_args": _model_args(result, identity, experiment),
        "eval_params": _eval_params(result, identity, environment),
    }


def summary_text(summary: Mapping[str, Any]) -> str:
    """A summary as the older scripts wrote it: indented, in the order of its fields."""
    return json.dumps(summary, indent=2, allow_nan=False) + "\n"


def _timestamp(finished: Any) -> str | None:
    """`2026-11-18T02:00:00+00:00` as `20261118_020000`."""
    try:
        return datetime.fromisoformat(str(finished)).strftime("%Y%m%d_%H%M%S")
    except ValueError:
        return None


def _throughput(result: Mapping[str, Any]) -> dict[str, Any]:
    decoding = _part(_part(result, "speed"), "decoding")
    seconds = (decoding.get("prefill_seconds") or 0.0) + (decoding.get("decode_seconds") or 0.0)
    tokens = decoding.get("tokens")
    if not seconds or tokens is None or _part(result, "answers").get("resumed"):
        return {}
    return {
        "tokens_generated": tokens,
        "total_time_s": round(seconds, 2),
        "tokens_per_s": round(tokens / seconds, 2),
    }


def _gpu_info(environment: Mapping[str, Any]) -> dict[str, Any]:
    gpus = environment.get("gpus") or []
    if not gpus or not str(environment.get("device", "")).startswith("cuda"):
        return {"gpu_available": False}
    return {
        "gpu_available": True,
        "gpu_name": gpus[0].get("name"),
        "gpu_total_vram_gb": gpus[0].get("memory_gb"),
        "cuda_device": 0,
        "cuda_version": environment.get("cuda"),
        "driver_version": gpus[0].get("driver"),
    }


def _group_results(result: Mapping[str, Any]) -> dict[str, Any]:
    """lm-eval's rows of the task and of its subtasks; the first names the metric that `accuracy` is."""
    task = str(result["task"])
    found = {task: {**_row(result), **_part(result, "metrics"), "alias": task}}
    for name, subtask in _part(result, "subtasks").items():
        found[name] = {**_row(subtask), "alias": f" - {name.removeprefix(f'{task}_').replace('_', ' ')}"}
    return found


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    metric = str(entry.get("metric"))
    name, _, filtered = metric.partition(",")
    error = f"{name}_stderr,{filtered}" if filtered else f"{name}_stderr"
    return {metric: entry.get("value"), error: entry.get("stderr")}


def _model_args(
    result: Mapping[str, Any], identity: Mapping[str, Any], experiment: str | None
) -> dict[str, Any]:
    policy, decode = _part(identity, "policy"), _part(identity, "decode")
    reuses = policy.get("kind") == "layer_reuse"
    return {
        "model_path": _part(result, "model").get("checkpoint"),
        "reuse_k": policy.get("k") if reuses else None if policy.get("kind", "full") != "full" else 1,
        "layer_subset": policy.get("layers") if reuses else None,
        "use_block_cache": decode.get("block_cache"),
        "show_speed": True,
        "experiment_name": experiment,
        "threshold": decode.get("threshold"),
        "policy": dict(policy),
        "decode": dict(decode),
        "weights_sha256": identity.get("weights"),
        "run_id": result.get("id"),
    }


def _eval_params(
    result: Mapping[str, Any], identity: Mapping[str, Any], environment: Mapping[str, Any]
) -> dict[str, Any]:
    task = _part(identity, "task")
    limit, batch = task.get("limit"), environment.get("batch_size")
    used = result.get("num_fewshot") or []
    return {
        "num_fewshot": used[0] if len(used) == 1 else task.get("num_fewshot"),
        "batch_size": None if batch is None else str(batch),
        "limit": None if limit is None else float(limit),
        "rows": result.get("rows"),
    }


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
