"""A store with a finished experiment, written through the store's own functions."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sweeps import PROVENANCE, SHAPE, TASK, clean, decode, policy, write

from unmask.analysis.table import ConfigurationResult, Table
from unmask.store import RunFolder, Store
from unmask.store.experiments import Member, write_experiment
from unmask.store.result import (
    AccuracyResult,
    Conditions,
    Environment,
    SharedWork,
    TimedConfiguration,
    TimingResult,
)

NAMES = ("k1_first", "k1_middle", "k2_first", "k2_last", "k3_first")
RECIPE = """
name = "sweep"
hypothesis = "Reuse pays."
[model]
checkpoint = "embedded"
[[tasks]]
name = "arith"
[[grid]]
name = "k{k}_{layers}"
policy = { kind = "layer_reuse", unit = "residual", size = 4 }
[grid.axes]
k = [1, 2, 3]
layers = ["first", "middle", "last"]
[success]
task = "arith"
control = "k1_first"
candidates = ["k2_*"]
confirm = { speedup = 1.02, drop = 0.05 }
"""
ENVIRONMENT = {
    "commit": PROVENANCE["commit"],
    "dirty": False,
    "cpu": "Some CPU",
    "cores": 2,
    "host": "node1",
    "dtype": "float32",
    "packages": {"torch": "2.9.1"},
    "gpus": [],
}


def filled(folder: Path, rows: int = 300) -> tuple[Store, Table]:
    """A store with five accuracy runs, a timing run and a planned run without a result; and what it was made of."""
    store, table = Store.at(folder / "results"), clean(0, rows)
    random = np.random.default_rng(9)
    members = []
    for entry in table.entries:
        if entry.configuration in NAMES:
            run = store.run(identity_of(entry))
            attempt = run.new_attempt()
            right = random.permutation(rows) < round(entry.value * rows)
            write(attempt.folder, entry, right).rename(attempt.folder / "samples.jsonl")
            run.publish(result_of(run, entry, attempt.number))
            members.append(member(run, entry.configuration))
    timing = store.run({"schema": 1, "kind": "timing", "task": {"name": TASK}, "configurations": settings()})
    timing.publish(timing_result(timing, table))
    members.append(member(timing, "timing", "timing"))
    planned = store.run(
        {"schema": 1, "kind": "accuracy", "task": {"name": TASK}, "policy": policy("k2_middle")}
    )
    members.append(member(planned, "k2_middle"))
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    write_experiment(store, "sweep", recipe, RECIPE, members, "k1_first")
    return store, table


def member(run: RunFolder, configuration: str, kind: str = "accuracy") -> Member:
    return Member(configuration=configuration, task=TASK, limit=None, id=run.id, folder=run.name, kind=kind)


def identity_of(entry: ConfigurationResult) -> dict[str, Any]:
    task = {"name": TASK, "limit": None, "version": {"arith": 1.0}, "rows_sha256": {"arith": "d" * 64}}
    return {
        "schema": 1,
        "kind": "accuracy",
        "engine": 1,
        "weights": PROVENANCE["weights"],
        "dtype": None,
        "policy": dict(entry.policy),
        "decode": dict(entry.decode),
        "task": {**task, "lm_eval": "0.4.13"},
    }


def result_of(run: RunFolder, entry: ConfigurationResult, attempt: str) -> AccuracyResult:
    fields = {
        "schema": 1,
        "id": run.id,
        "kind": "accuracy",
        "identity": identity_of(entry),
        "attempt": attempt,
        "task": TASK,
        "metric": "exact_match,none",
        "value": entry.value,
        "stderr": 0.01,
        "rows": entry.rows,
        "rows_of_the_set": entry.rows,
        "effect": msgspec.to_builtins(entry.effect),
        "shared": {"generation": {"positions": 64, "flops": 4000, "forwards": 7}},
        "answers": {
            "sha256": entry.answers,
            "count": entry.rows,
            "tokens": entry.tokens,
            "truncated": 3,
            "resumed": 2,
        },
        "speed": {"decoding": {"tokens_per_second": 55.5}},
        "seconds": 12.5,
        "model": {"shape": SHAPE},
        "environment": ENVIRONMENT,
    }
    return msgspec.convert(fields, AccuracyResult)


def settings() -> dict[str, Any]:
    return {name: {"policy": policy(name), "decode": decode(name)} for name in NAMES}


def timing_result(run: RunFolder, table: Table) -> TimingResult:
    measured = {
        one.configuration: TimedConfiguration(
            tokens=one.tokens,
            requests=one.requests,
            forwards=one.forwards,
            seconds=list(one.seconds),
            tokens_per_second=one.tokens_per_second,
            speedup=one.speedup,
            effect=one.effect["generation"],
            shared=SharedWork(positions=32, flops=2000, forwards=3),
            answers_sha256=one.answers,
        )
        for one in table.timings
        if one.configuration in NAMES
    }
    return TimingResult(
        id=run.id,
        identity=run.identity,
        attempt="0001",
        task=TASK,
        control="k1_first",
        configurations=measured,
        conditions=Conditions(load_before=0.1, other_processes=0),
        environment=msgspec.convert(ENVIRONMENT, Environment),
    )
