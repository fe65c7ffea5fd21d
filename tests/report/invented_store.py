"""An invented store in the layout of docs/store.md: a grid, thresholds, subjects, timings, failed attempts.

Nothing in it was measured. Outcomes are drawn with fixed seeds, so figures and flips are the same every time.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from unmask.store import RunFolder, Store, canonical
from unmask.store.experiments import Member, read_experiment, write_experiment
from unmask.store.result import AccuracyResult, TimingResult
from unmask.store.run_folder import WorkerSettings

LAYERS = 24
RECIPE = """
name = "{name}"
hypothesis = "Reusing layers is faster & loses <little>."
expected = "k = 2 loses a few points."

[model]
checkpoint = "embedded"

[[tasks]]
name = "arith"
[[tasks]]
name = "exam"

[[grid]]
name = "k{{k}}_{{layers}}"
policy = {{ kind = "layer_reuse", unit = "residual" }}
[grid.axes]
k = [1, 2, 3]
layers = ["first", "middle", "last"]

[success]
task = "arith"
control = "k1_first"
candidates = ["k2_*", "k3_*"]
confirm = {{ speedup = 1.1, drop = 0.05 }}
reject = {{ speedup = 1.02, drop = 0.3 }}
"""
SUBJECTS = (
    "anatomy",
    "astronomy",
    "business_ethics",
    "clinical_knowledge",
    "college_chemistry",
    "computer_security",
    "econometrics",
    "formal_logic",
    "high_school_geography",
    "international_law",
    "machine_learning",
    "world_religions",
)
HOSTS = ("node1", "node2", "node3")
BEGIN = 1_795_000_000


def policy(k: int, layers: str, unit: str) -> dict[str, Any]:
    return {"kind": "layer_reuse", "k": k, "layers": layers, "unit": unit, "on": ["sub", "block"]}


def grid(unit: str = "residual") -> dict[str, dict[str, Any]]:
    """Names of configurations with decode settings and policy."""
    plain = {"threshold": 0.9, "block_size": 32, "sub_block_size": 8, "block_cache": True}
    found = {
        f"k{k}_{layers}": {"decode": plain, "policy": policy(k, layers, unit)}
        for k in (1, 2, 3)
        for layers in ("first", "middle", "last")
    }
    for threshold in (0.7, 0.8):
        found[f"t{threshold}"] = {"decode": {**plain, "threshold": threshold}, "policy": {"kind": "full"}}
    return found


QUALITY = {"k1": 0.82, "k2": 0.79, "k3": 0.66, "t0.7": 0.70, "t0.8": 0.78}
SPEED = {"k1": 1.0, "k2": 1.16, "k3": 1.31, "t0.7": 1.35, "t0.8": 1.2}
SKIPPED = {"k1": 0.0, "k2": 0.17, "k3": 0.24, "t0.7": 0.0, "t0.8": 0.0}
BY_SUBSET = {"first": -0.02, "middle": 0.0, "last": 0.01}


def family(name: str) -> str:
    return name.partition("_")[0]


def write_store(
    root: Path,
    name: str = "05_invented",
    rows: int = 400,
    unit: str = "residual",
    answer: str = "The answer is {value}.\n#### {value}",
    configurations: Iterable[str] | None = None,
    tasks: Sequence[str] = ("arith", "exam"),
    prompt: str = "Question: how much is {index} plus {other}? Think of <b>apples</b> & pears.\nAnswer:",
) -> Store:
    """Write an experiment with all its runs."""
    store = Store.at(root)
    settings = grid(unit)
    chosen = list(configurations or settings)
    members = [
        accuracy_run(store, configuration, settings[configuration], task, rows, number, answer, prompt)
        for number, configuration in enumerate(chosen)
        for task in tasks
    ]
    members.append(timing_run(store, {name: settings[name] for name in chosen}))
    write_experiment(store, name, root / "recipe.toml", RECIPE.format(name=name), members, control="k1_first")
    return store


def outcome(configuration: str, task: str, index: int) -> bool:
    """Whether a row is answered right: equal policies (k1) agree on every row."""
    base = "k1" if family(configuration) == "k1" else configuration
    difficulty = random.Random(f"{task}/{index}").random()
    chance = QUALITY[family(configuration)]
    chance += BY_SUBSET.get(configuration.partition("_")[2], 0.0) if base != "k1" else 0.0
    noise = random.Random(f"{base}/{task}/{index}").random()
    return (0.8 * difficulty + 0.2 * noise) < chance * 0.98


def sample(configuration: str, task: str, index: int, answer: str, prompt: str) -> dict[str, Any]:
    correct = outcome(configuration, task, index)
    value = 2 * index + 7 + (0 if correct else 1 + len(configuration))
    subject = f"exam_{SUBJECTS[index % len(SUBJECTS)]}" if task == "exam" else task
    return {
        "id": f"{subject}/{index}",
        "task": subject,
        "doc_id": index,
        "correct": float(correct),
        "metrics": {"exact_match,strict-match": float(correct)},
        "prompt": prompt.format(index=index, other=index + 7),
        "answer": answer.format(value=value),
        "target": str(2 * index + 7),
        "tokens": 20 + index % 7,
        "finish": "stop",
        "scores": None,
    }


def effect(configuration: str, requests: int) -> dict[str, Any]:
    skipped = SKIPPED[family(configuration)]
    steps = {"t0.7": 0.72, "t0.8": 0.83}.get(configuration, 1.0)
    kinds = {"prefill": 64, "block": 160, "sub": 90, "commit": 64}
    by_kind = {}
    for kind, rows in kinds.items():
        whole = int(rows * requests * LAYERS * 2 * (steps if kind in ("block", "sub") else 1))
        left = int(whole * min(0.9, skipped * 1.6)) if kind in ("block", "sub") else 0
        by_kind[kind] = {
            "forwards": requests * rows // 32,
            "rows": rows * requests,
            "branch_rows": whole - left,
            "branch_rows_skipped": left,
        }
    done = sum(part["branch_rows"] for part in by_kind.values())
    left = sum(part["branch_rows_skipped"] for part in by_kind.values())
    return {
        "requests": requests,
        "forwards": {kind: part["forwards"] for kind, part in by_kind.items()},
        "rows": kinds,
        "layer_calls": [100] * LAYERS,
        "layer_calls_replayed": 10,
        "branch_rows": done,
        "branch_rows_skipped": left,
        "flops": done * 1000,
        "flops_skipped": left * 1000,
        "by_kind": by_kind,
        "reuse_fraction": left / (done + left),
        "inactive": None,
    }


def environment(host: str) -> dict[str, Any]:
    return {
        "commit": "c0ffee" * 6 + "abcd",
        "dirty": False,
        "diff_sha256": None,
        "packages": {"torch": "2.9.1"},
        "cpu": "a processor",
        "gpus": [{"name": "Quadro RTX 6000"}],
        "cores": 8,
        "host": host,
        "device": "cuda",
        "dtype": "float16",
    }


def accuracy_run(
    store: Store,
    configuration: str,
    setting: Mapping[str, Any],
    task: str,
    rows: int,
    number: int,
    answer: str,
    prompt: str,
) -> Member:
    identity = {
        "schema": 1,
        "kind": "accuracy",
        "engine": 1,
        "weights": "ab" * 32,
        "dtype": None,
        **setting,
        "configuration": configuration,
        "task": {
            "name": task,
            "limit": None,
            "chat": False,
            "rows_sha256": {task: "cd" * 32},
            "version": {task: "1.0"},
            "lm_eval": "0.4.13",
        },
    }
    run = store.run(identity, WorkerSettings(checkpoint="embedded", configuration=configuration))
    host = HOSTS[number % len(HOSTS)]
    start = BEGIN + 700 * (number // len(HOSTS)) + (330 if task == "exam" else 0)
    if configuration == "k3_last" and task == "arith":
        write_attempt(run, "node3", start - 900, failure="CUDA error: <out of memory>")
    attempt = write_attempt(run, host, start)
    samples = [sample(configuration, task, index, answer, prompt) for index in range(rows)]
    (attempt / "samples.jsonl").write_bytes(b"".join(canonical(one) + b"\n" for one in samples))
    value = sum(one["correct"] for one in samples) / rows
    digest = "k1" if family(configuration) == "k1" else configuration
    subtasks = {}
    if task == "exam":
        for subject in SUBJECTS:
            part = [one["correct"] for one in samples if one["task"] == f"exam_{subject}"]
            if part:
                subtasks[f"exam_{subject}"] = {
                    "metric": "acc,none",
                    "value": sum(part) / len(part),
                    "stderr": 0.04,
                    "rows": len(part),
                }
    result = {
        "schema": 1,
        "id": run.id,
        "kind": "accuracy",
        "identity": identity,
        "attempt": attempt.name,
        "task": task,
        "metric": "exact_match,strict-match" if task == "arith" else "acc,none",
        "value": value,
        "stderr": 0.02,
        "rows": rows,
        "rows_of_the_set": rows,
        "metrics": {},
        "subtasks": subtasks,
        "effect": {("generation" if task == "arith" else "scoring"): effect(configuration, rows)},
        "answers": {
            "sha256": f"{digest}-{task}".encode().hex().ljust(64, "0")[:64],
            "count": rows,
            "tokens": sum(one["tokens"] for one in samples) if task == "arith" else None,
            "truncated": 0,
            "resumed": 0,
        },
        "speed": {},
        "seconds": 300.0,
        "finished": moment(start + 300),
        "model": {},
        "environment": environment(host),
    }
    run.publish(msgspec.convert(result, AccuracyResult))
    return Member(
        configuration=configuration, task=task, limit=None, id=run.id, folder=run.name, kind="accuracy"
    )


def timing_run(store: Store, settings: Mapping[str, Mapping[str, Any]]) -> Member:
    identity = {
        "schema": 1,
        "kind": "timing",
        "engine": 1,
        "weights": "ab" * 32,
        "task": {"name": "arith"},
        "prompts": 16,
        "repeats": 7,
        "control": "k1_first",
        "batch_size": 1,
        "configurations": dict(settings),
    }
    run = store.run(identity, WorkerSettings(checkpoint="embedded", configuration="timing"))
    attempt = write_attempt(run, "node1", BEGIN + 3000)
    noise = random.Random(7)
    measured = {}
    for configuration in settings:
        pace = SPEED[family(configuration)]
        seconds = [10 / pace * noise.uniform(0.985, 1.015) for _ in range(7)]
        measured[configuration] = {
            "tokens": 1000,
            "requests": 16,
            "forwards": 400,
            "seconds": seconds,
            "tokens_per_second": 1000 / sorted(seconds)[3],
            "requests_per_second": 16 / sorted(seconds)[3],
            "speedup": {"median": pace, "low": pace * 0.99, "high": pace * 1.01, "coverage": 0.95},
            "effect": effect(configuration, 16),
            "answers_sha256": None,
        }
    run.publish(
        msgspec.convert(
            {
                "schema": 1,
                "id": run.id,
                "kind": "timing",
                "identity": identity,
                "attempt": attempt.name,
                "task": "arith",
                "path": "generation",
                "prompts": 16,
                "repeats": 7,
                "control": "k1_first",
                "configurations": measured,
                "conditions": {"load_before": 0.1, "load_after": 1.0, "other_processes": 0},
                "seconds": 800.0,
                "finished": moment(BEGIN + 3800),
                "environment": environment("node1"),
            },
            TimingResult,
        )
    )
    return Member(configuration="timing", task="arith", limit=None, id=run.id, folder=run.name, kind="timing")


def write_attempt(run: RunFolder, host: str, start: float, failure: str | None = None) -> Path:
    folder = run.folder / "attempts" / f"{len(run.attempts()) + 1:04}"
    folder.mkdir(parents=True)
    record = {"schema": 1, "run": run.id, "host": host, "pid": 1, "slurm": {}, "started": moment(start)}
    (folder / "attempt.json").write_text(json.dumps(record))
    if failure:
        told = {"schema": 1, "reason": failure, "time": moment(start + 200)}
        (folder / "failure.json").write_text(json.dumps(told))
    return folder


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def add_replays(store: Store, experiment: str, configurations: Iterable[str], samples: int = 2) -> None:
    """Replays of the first samples that flipped between two configurations, as `unmask report` would find them."""
    one, other = configurations
    flipped = [
        index for index in range(100) if outcome(one, "arith", index) != outcome(other, "arith", index)
    ]
    flipped.sort(key=lambda index: outcome(other, "arith", index))
    written = read_experiment(store, experiment)
    assert written is not None
    for member in written.members:
        if member.task == "arith" and member.configuration in (one, other):
            run = RunFolder(store.runs_folder / member.folder)
            for index in flipped[:samples]:
                write_replay(
                    run, f"arith/{index}", outcome(member.configuration, "arith", index), member.configuration
                )


def write_replay(run: RunFolder, sample_id: str, correct: bool, configuration: str) -> None:
    """Two blocks of eight positions; every third step replays a part of the layers."""
    reusing = not configuration.startswith("k1")
    steps: list[dict[str, Any]] = [{"kind": "prefill", "fed": [0, 8], "written": []}]
    for number in range(1, 9):
        start = 8 if number < 5 else 16
        column = 10 + 2 * (number - 1) if number < 5 else 16 + 2 * (number - 5)
        step: dict[str, Any] = {
            "kind": "sub" if number % 2 else "block",
            "fed": [start, start + 8],
            "written": [[column, f"word{number} ", 0.95], [column + 1, "<b>&amp; ", 0.41]],
        }
        if reusing:
            step["ops"], step["unit"] = ("c4p16c4" if number % 3 == 0 else "c4f16c4"), "residual"
        steps.append(step)
    recording = {
        "correct": float(correct),
        "prompt": "How much is <i>1</i> + 1?",
        "answer": "word",
        "target": "2",
        "same": True,
        "prompt_tokens": 10,
        "block_size": 8,
        "sub_block_size": 8,
        "layers": LAYERS,
        "threshold": 0.9,
        "tokens": 14,
        "finish": "stop",
        "text": "word",
        "steps": steps,
    }
    run.keep_recording(sample_id, recording)
