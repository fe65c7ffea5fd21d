"""A small recipe with an invented lock, and results that no model has given: sweeps without workers."""

import csv
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from recipe_cases import lock_for
from unmask.cost.work_sums import KindSums, WorkSums
from unmask.spec.lock import as_text
from unmask.spec.recipe import read_recipe
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store import RunFolder, Store
from unmask.store.result import AnyResult

TEXT = """\
# Does anything happen?
name = "planted"
hypothesis = "Reuse is faster."
expected = "Nothing."

[model]
checkpoint = "embedded"

[[tasks]]
name = "unmask_arith"
limit = 4

[[grid]]
name = "k{k}_{layers}"
policy = { kind = "layer_reuse", unit = "output" }
[grid.axes]
k = [1, 2]
layers = ["first", "last"]

[[configurations]]
name = "t0.7"
decode = { threshold = 0.7 }

[[timing]]
task = "unmask_arith"
prompts = 2
repeats = 3

[success]
task = "unmask_arith"
control = "k1_first"
candidates = ["k2_*", "t0.7"]
confirm = { speedup = 1.2, drop = 0.05 }
"""
ACCURACY_RUNS = ("k1_first", "k1_last", "k2_first", "k2_last", "t0.7")
ALL_RUNS = (*ACCURACY_RUNS, "timing")
LAYERS = 24
WORKER = Path(__file__).with_name("planted_worker.py")


def write_recipe(folder: Path, text: str = TEXT) -> Path:
    """A recipe's folder with a lock that no file was needed for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(text)
    (folder / "recipe.lock").write_text(as_text(lock_for(read_recipe(folder))))
    return folder


def runs_of(recipe: Path, **selection: Any) -> dict[str, PlannedRun]:
    """The planned runs of a recipe by configuration."""
    found = read_recipe(recipe)
    return {run.configuration: run for run in sweep_of(found, lock_for(found), **selection)}


def folder_of(store: Store, recipe: Path, configuration: str, **selection: Any) -> RunFolder:
    """Where a run is, or will be."""
    return store.find(runs_of(recipe, **selection)[configuration].identity)


def result_of(run: RunFolder, configuration: str, right: int = 3, digest: str = "") -> AnyResult:
    """An invented result of a run."""
    return msgspec.convert(_fields(run, configuration, right, digest), AnyResult)


def _fields(run: RunFolder, configuration: str, right: int, digest: str) -> dict[str, Any]:
    identity = run.identity
    shared = {
        "schema": 1,
        "id": run.id,
        "identity": identity,
        "attempt": "0001",
        "task": identity["task"]["name"],
        "seconds": 2.0,
        "finished": "2026-11-18T02:00:00+00:00",
        "environment": {
            "commit": "c0ffee",
            "dirty": False,
            "host": platform.node(),
            "cpu": "a processor",
            "device": "cpu",
        },
    }
    if identity["kind"] == "timing":
        return {**shared, **_timing(identity)}
    rows, reuses = identity["task"]["limit"] or 600, identity["policy"].get("k", 1) > 1
    idle = "k=1 never reuses" if identity["policy"].get("k") == 1 else None
    effect = {**effect_of(rows, reuses), "inactive": idle}
    answers = digest or ("reused" if reuses else f"{identity['decode']['threshold']}")
    return {
        **shared,
        "kind": "accuracy",
        "metric": "exact_match,strict-match",
        "value": min(right, rows) / rows,
        "stderr": 0.1,
        "rows": rows,
        "rows_of_the_set": 600,
        "metrics": {"exact_match,strict-match": min(right, rows) / rows},
        "subtasks": {},
        "effect": {"generation": effect},
        "answers": {"sha256": answers, "count": rows, "tokens": 70 * rows, "truncated": 0, "resumed": 0},
        "speed": {"decoding": {"tokens": 70 * rows, "prefill_seconds": 0.5, "decode_seconds": 1.5}},
        "model": {"checkpoint": configuration},
    }


def effect_of(requests: int, reuses: bool) -> dict[str, Any]:
    """Ten full-block steps an answer, a quarter of them skipped or nothing."""
    rows = 10 * 32 * requests
    work, skipped = 2 * rows * LAYERS, rows * LAYERS // 2 if reuses else 0
    steps = KindSums(10 * requests, rows, work - skipped, skipped)
    effect = WorkSums(
        LAYERS, requests, layer_calls=[10 * requests] * LAYERS, flops=work, flops_skipped=skipped
    )
    effect.kinds["block"].add(steps)
    return effect.as_dict()


def _timing(identity: dict[str, Any]) -> dict[str, Any]:
    def measured(name: str) -> dict[str, Any]:
        median = 1.0 if name.startswith("k1") else 1.25
        return {
            "tokens": 140,
            "requests": 2,
            "forwards": 28,
            "seconds": [2.0, 2.0, 2.0],
            "tokens_per_second": 70.0 * median,
            "requests_per_second": median,
            "speedup": {"median": median, "low": median, "high": median, "coverage": 0.75},
            "effect": effect_of(2, name.startswith("k2")),
            "answers_sha256": name,
        }

    return {
        "kind": "timing",
        "path": "generation",
        "prompts": identity["prompts"],
        "repeats": identity["repeats"],
        "control": identity["control"],
        "configurations": {name: measured(name) for name in identity["configurations"]},
        "conditions": {},
    }


def plant(
    store: Store, recipe: Path, *configurations: str, right: int = 3, **selection: Any
) -> list[RunFolder]:
    """Publish results of these configurations, or of all."""
    planted = []
    for name, planned in runs_of(recipe, **selection).items():
        if not configurations or name in configurations:
            run = store.run(planned.identity)
            assert run.publish(result_of(run, name, right))
            planted.append(run)
    return planted


def plant_stopped(run: RunFolder, log: str | None = None) -> None:
    """An attempt whose process is gone."""
    attempt = run.new_attempt()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file = attempt.folder / "attempt.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": gone.pid}))
    if log is not None:
        attempt.log.write_text(log)


def use_planted_worker(folder: Path) -> str:
    """A program that stands in for Python: started as a worker it plants a result within a moment."""
    program = folder / "planted-python"
    paths = os.pathsep.join([str(WORKER.parent), str(WORKER.parents[1])])
    program.write_text(
        "#!/bin/sh\n"
        'case "$1 $2 $3" in\n'
        f'"-m unmask run-one") PYTHONPATH="{paths}" exec "{sys.executable}" "{WORKER}" "$4" ;;\n'
        f'*) exec "{sys.executable}" "$@" ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    return str(program)


def read_csv(file: Path, kind: str) -> list[dict[str, str]]:
    """Rows of an exported table."""
    with file.open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["kind"] == kind]
