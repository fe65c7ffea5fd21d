"""Results for other programs: CSV, Parquet, and the tree of summary.json files that older scripts read.

Knows index records, the names that an experiment gives them, and the layout of older scripts. Every file is written
whole, and one that is there with other content is never replaced. A timing run gives one row for each of its
configurations.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import read_plain
from unmask.spec import PolicySpec, known_policy
from unmask.spec.decode import cache_of
from unmask.spec.sweep import task_label
from unmask.store.files import make_folder, write_atomically
from unmask.store.foreign import stderr_key
from unmask.store.index import IndexedTiming, IndexRecord
from unmask.store.redaction import redacted
from unmask.store.result import AccuracyResult, Environment, Subtask
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store

COLUMNS: dict[str, type] = {
    "experiment": str,
    "configuration": str,
    "task": str,
    "limit": int,
    "kind": str,
    "id": str,
    "metric": str,
    "value": float,
    "stderr": float,
    "rows": int,
    "rows_of_the_set": int,
    "tokens": int,
    "truncated": int,
    "resumed": int,
    "tokens_a_forward": float,
    "answers_sha256": str,
    "reuse_generation": float,
    "reuse_scoring": float,
    "sandbox": str,
    "tokens_per_second": float,
    "requests_per_second": float,
    "speedup": float,
    "speedup_low": float,
    "speedup_high": float,
    "control": str,
    "policy": str,
    "decode": str,
    "weights": str,
    "commit": str,
    "dirty": bool,
    "host": str,
    "gpu": str,
    "device": str,
    "dtype": str,
    "seconds": float,
    "finished": str,
    "retracted": str,
}
"""Columns of a table and their types; a speed is given for timing runs only."""

FORMULA = ("=", "+", "-", "@", "\t", "\n")
"""With what a cell begins that a spreadsheet computes."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A record under the name that an experiment gives it."""

    record: IndexRecord
    experiment: str | None
    configuration: str
    own: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """Its policy and decode settings, where another configuration's run stands for it."""


def rows_of(labelled: Iterable[Labelled]) -> list[dict[str, Any]]:
    """Flat rows with all columns."""
    rows: list[dict[str, Any]] = []
    for item in labelled:
        if item.record.kind == "timing":
            rows.extend(_timing_row(item, name, timing) for name, timing in item.record.timings.items())
        else:
            rows.append(_accuracy_row(item))
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


def to_csv(labelled: Iterable[Labelled], path: Path) -> int:
    """Write a table; returns the number of its rows."""
    rows = rows_of(labelled)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    _write(path, text.getvalue().encode())
    return len(rows)


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would compute gets an apostrophe in front, which it takes as the mark of a text."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "\n")  # the csv module does not quote a carriage return
    return f"'{text}" if text.startswith(FORMULA) else text


def to_parquet(labelled: Iterable[Labelled], path: Path) -> int:
    """The same with types, for programs that read Parquet."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UnmaskError(
            "Parquet needs the package pyarrow; pip install pyarrow, or export to CSV."
        ) from None
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    clean = cache(redacted)  # in a compressed file no writer would find a secret
    rows = [
        {name: clean(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows_of(labelled)
    ]
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), sink)
    _write(path, sink.getvalue())
    return len(rows)


def to_tree(store: Store, labelled: Iterable[Labelled], folder: Path) -> list[Path]:
    """Write <task or task_limit_N>/<configuration>/summary.json of every accuracy run, or nothing at all.

    Retracted results are left out: older scripts could not tell them.
    """
    contents: dict[Path, bytes] = {}
    for item in labelled:
        if item.record.kind != "accuracy" or item.record.retraction is not None:
            continue
        label = task_label(item.record.task, item.record.limit)
        path = folder / _folder(label) / _folder(item.configuration) / "summary.json"
        content = _summary(store, item)
        if contents.setdefault(path, content) != content:
            raise UnmaskError(
                f"Two results would be written to {path}; export one experiment at a time, each to a folder of its own."
            )
    for path, content in contents.items():
        _refuse_other(path, content)
    for path, content in contents.items():
        make_folder(path.parent)
        _write(path, content)
    return list(contents)


def _summary(store: Store, item: Labelled) -> bytes:
    result = RunFolder(store.runs_folder / item.record.folder).result()
    if not isinstance(result, AccuracyResult):
        raise UnmaskError(f"{item.record.folder} has no result any more; run the command again.")
    if item.own:
        policy, decode = item.own
        result = msgspec.structs.replace(
            result, identity={**result.identity, "policy": policy, "decode": decode}
        )
    return summary_text(summary_of(result, item.configuration, item.experiment)).encode()


def _folder(name: str) -> str:
    """A name as that of a folder, which it must not leave."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UnmaskError(f"{name!r} cannot be the name of a folder; rename the configuration or task.")
    return name


def _accuracy_row(item: Labelled) -> dict[str, Any]:
    record, answers = item.record, item.record.answers
    fractions = {path: effect.reuse_fraction for path, effect in record.effect.items()}
    return {
        **_shared(item, item.configuration),
        **{name: getattr(record, name) for name in ("metric", "value", "stderr", "rows", "rows_of_the_set")},
        **{name: getattr(answers, name) for name in ("tokens", "truncated", "resumed")},
        "tokens_a_forward": record.tokens_a_forward,
        "answers_sha256": answers.sha256,
        "reuse_generation": fractions.get("generation"),
        "reuse_scoring": fractions.get("scoring"),
        "sandbox": record.sandbox,
        "policy": _json(item.own[0] if item.own else record.policy),
        "decode": _json(item.own[1] if item.own else record.decode),
    }


def _timing_row(item: Labelled, name: str, timing: IndexedTiming) -> dict[str, Any]:
    settings = (item.record.identity.get("configurations") or {}).get(name) or {}
    speedup = timing.speedup
    return {
        **_shared(item, name),
        "tokens": timing.tokens,
        "tokens_a_forward": timing.tokens_a_forward,
        "reuse_generation": timing.reuse_fraction,
        "tokens_per_second": timing.tokens_per_second,
        "requests_per_second": timing.requests_per_second,
        "speedup": speedup and speedup.median,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "control": item.record.control,
        "policy": _json(settings.get("policy") or {}),
        "decode": _json(settings.get("decode") or {}),
    }


def _shared(item: Labelled, configuration: str) -> dict[str, Any]:
    same = ("task", "limit", "kind", "id", "weights", "commit", "dirty", "host", "gpu", "device", "dtype")
    return {
        "experiment": item.experiment,
        "configuration": configuration,
        **{name: getattr(item.record, name) for name in (*same, "seconds", "finished")},
        "retracted": item.record.retraction,
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _write(path: Path, content: bytes) -> None:
    """Write a new file; the same content once more is no change."""
    if not _refuse_other(path, content):
        write_atomically(path, content)


def _refuse_other(path: Path, content: bytes) -> bool:
    """True if the file is there with this content; another content is not ours to replace."""
    try:
        if read_plain(path) == content:
            return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read ({error.strerror}); choose another place.") from None
    raise UnmaskError(f"{path} is there already with other content; choose another place or move it away.")


# summary.json, as the first experiments wrote it. A field that the older layout has no honest value for is left empty.


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
    rows = {task: {**_metric_row(result), **result.metrics, "alias": task}}
    for name, subtask in result.subtasks.items():
        rows[name] = {
            **_metric_row(subtask),
            "alias": f" - {name.removeprefix(f'{task}_').replace('_', ' ')}",
        }
    return rows


def _metric_row(figures: AccuracyResult | Subtask) -> dict[str, Any]:
    metric = str(figures.metric)
    return {metric: figures.value, stderr_key(metric): figures.stderr}


def _model_args(result: AccuracyResult, experiment: str | None) -> dict[str, Any]:
    policy, decode = result.identity.get("policy") or {}, result.identity.get("decode") or {}
    spec = known_policy(policy)
    return {
        "model_path": result.model.checkpoint,
        **(spec or PolicySpec()).older_names,
        "use_block_cache": cache_of(decode) != "none" if cache_of(decode) else None,
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
