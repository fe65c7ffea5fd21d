"""Identities and results in the layout of docs/store.md, as small as they can be."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from unmask.store import RunFolder, Store
from unmask.store.attempt import GeneratedAnswer
from unmask.store.result import AccuracyResult, TimingResult

ENVIRONMENT = {
    "commit": "c0ffee",
    "dirty": False,
    "diff_sha256": None,
    "packages": {"torch": "2.9.1"},
    "python": "3.12.3",
    "cpu": "a processor",
    "gpus": [{"name": "a GPU", "uuid": "GPU-1", "driver": "575.1", "memory_gb": 23.5}],
    "cuda": "12.8",
    "host": "node1",
    "slurm": {"job": "77"},
    "device": "cuda",
    "dtype": "float16",
    "batch_size": 16,
}


def identity(task: str = "gsm8k", k: int = 2, limit: int | None = None) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "accuracy",
        "engine": 1,
        "weights": "w" * 64,
        "dtype": None,
        "decode": {"threshold": 0.9, "block_cache": True},
        "policy": {"kind": "layer_reuse", "k": k, "layers": "middle"},
        "task": {"name": task, "limit": limit, "num_fewshot": 0},
    }


def timing_identity() -> dict[str, Any]:
    settings = {"decode": {"threshold": 0.9}, "policy": {"kind": "full"}}
    return {
        "schema": 1,
        "kind": "timing",
        "task": {"name": "gsm8k"},
        "prompts": 2,
        "repeats": 2,
        "control": "k1",
        "configurations": {"k1": settings, "k2": settings},
    }


def result(run: RunFolder, value: float = 0.75, **changes: Any) -> AccuracyResult:
    return msgspec.convert(fields_of_a_result(run, value, **changes), AccuracyResult)


def fields_of_a_result(run: RunFolder, value: Any = 0.75, **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": run.id,
        "kind": "accuracy",
        "identity": run.identity,
        "attempt": "0001",
        "task": run.identity["task"]["name"],
        "metric": "exact_match,flexible-extract",
        "value": value,
        "stderr": 0.01,
        "rows": 1319,
        "rows_of_the_set": 1319,
        "metrics": {"exact_match,strict-match": 0.5, "exact_match,flexible-extract": value},
        "subtasks": {},
        "effect": {"generation": {"requests": 1319, "reuse_fraction": 0.25, "inactive": None}},
        "answers": {"sha256": "a" * 64, "count": 1319, "tokens": 1000, "truncated": 3, "resumed": 0},
        "speed": {"decoding": {"tokens": 1000, "prefill_seconds": 2.0, "decode_seconds": 8.0}},
        "seconds": 12.5,
        "finished": "2026-11-18T02:00:00+00:00",
        "model": {"checkpoint": "a/model"},
        "environment": ENVIRONMENT,
        **changes,
    }


def timing_result(run: RunFolder) -> TimingResult:
    speedup = {"median": 1.1, "low": 1.0, "high": 1.2, "coverage": 0.94}
    one = {"tokens": 100, "tokens_per_second": 50.0, "speedup": speedup, "effect": {"reuse_fraction": 0.5}}
    fields = {
        "schema": 1,
        "id": run.id,
        "kind": "timing",
        "identity": run.identity,
        "attempt": "0001",
        "task": "gsm8k",
        "control": "k1",
        "configurations": {"k1": {**one, "speedup": None}, "k2": one},
        "environment": ENVIRONMENT,
    }
    return msgspec.convert(fields, TimingResult)


def answer(key: str, text: str = "") -> GeneratedAnswer:
    return GeneratedAnswer(key=key, text=text, tokens=1, finish="stop", effect=(1, [], [], 0, 0))


def done(
    store: Store, task: str = "gsm8k", k: int = 2, value: float = 0.75, limit: int | None = None
) -> RunFolder:
    """A run with a result."""
    run = store.run(identity(task, k, limit))
    assert run.publish(result(run, value))
    return run


def hidden_files(folder: Path) -> list[Path]:
    """What an interrupted writer would have left."""
    return [file for file in folder.rglob(".*") if file.is_file()]


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Look again and again; the limit is only there so that a failure ends."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.002)
