"""Simulated sweeps as tables: a clean one by chance, to be spoiled by the tests."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, ConfigurationTiming, Table
from unmask.cost.median import median_interval
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store.result import Conditions, Effect, MeasuredSpeedup

TASK = "arith"
ROWS = 2000
LAYERS = 12
TOKENS = 60
"""Of a usual answer."""
SHAPE = {
    "layers": LAYERS,
    "hidden": 128,
    "ffn": 320,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "vocabulary": 136,
}
SUCCESS = SuccessSpec(
    task=TASK,
    control="k1_first",
    candidates=("k2_*", "k3_*"),
    confirm=Bounds(speedup=1.02, drop=0.05),
    reject=Bounds(speedup=1.0, drop=0.3),
)
LOST = {
    "k2_first": 0.12,
    "k2_middle": 0.08,
    "k2_last": 0.03,
    "k3_first": 0.30,
    "k3_middle": 0.22,
    "k3_last": 0.15,
    "t0.8": 0.04,
    "t0.7": 0.09,
}
"""Share of the control's right answers that each configuration loses, in truth."""
GAIN = {"k2": 1.06, "k3": 1.09, "t0.8": 1.05, "t0.7": 1.12}
"""Speed-ups in truth; savings in operations are the same, as on a machine without overhead."""
PROVENANCE = {
    "weights": "w" * 64,
    "engine": 1,
    "dtype": "float32",
    "data": {"arith": "d" * 64},
    "task version": {"arith": 1.0},
    "lm_eval": "0.4.13",
    "commit": "c" * 40,
    "dirty": False,
    "machine": "Some CPU",
    "host": "node1",
    "torch": "2.9.1",
}


def policy(name: str, unit: str = "residual") -> dict[str, Any]:
    if name.startswith("t"):
        return {"kind": "full"}
    k, layers = name.removeprefix("k").split("_")
    return {
        "kind": "layer_reuse",
        "k": int(k),
        "layers": layers,
        "size": 4,
        "unit": unit,
        "on": ["sub"],
        "warmup": 1,
        "calibration": None,
        "share": None,
    }


def decode(name: str) -> dict[str, Any]:
    return {"threshold": float(name[1:]) if name.startswith("t") else 0.9, "max_new_tokens": 160}


def effect(name: str, count: int, tokens: int) -> dict[str, Effect]:
    reuses = name.startswith(("k2", "k3"))
    saved = 1 - 1 / GAIN[name[:2]] if reuses else 0.0
    gain = GAIN.get(name, GAIN.get(name[:2], 1.0))
    work = 1000 * tokens
    return {
        "generation": Effect(
            requests=count,
            forwards={"prefill": count, "block": tokens // 10, "sub": tokens // 3, "commit": count},
            layer_calls=[count] * LAYERS,
            branch_rows=round(work * (1 - saved)),
            branch_rows_skipped=round(work * saved),
            flops=round(1e6 * work / gain),
            flops_skipped=round(1e6 * work * saved),
            reuse_fraction=saved,
            inactive="k=1 never reuses: this is the baseline under another name"
            if name[:2] == "k1"
            else None,
        )
    }


def outcomes(random: np.random.Generator, rows: int) -> dict[str, NDArray[np.bool_]]:
    """Who answers which rows right: losses of the control's right answers, and a few gains."""
    base = random.random(rows) < 0.9
    found = {f"k1_{subset}": base for subset in ("first", "middle", "last")}
    for name, lost in LOST.items():
        found[name] = np.where(base, random.random(rows) >= lost, random.random(rows) < 0.1)
    return found


def entry(
    name: str, right: NDArray[np.bool_], random: np.random.Generator, **fields: Any
) -> ConfigurationResult:
    own = b"control" if name.startswith("k1") else name.encode()
    count = len(right)
    wordy = 0 if name.startswith("k1") else int(random.integers(-200, 200))
    tokens = TOKENS * count + wordy
    given: dict[str, Any] = {
        "experiment": "sweep",
        "configuration": name,
        "task": TASK,
        "limit": None,
        "policy": policy(name),
        "decode": decode(name),
        "value": float(right.mean()),
        "rows": count,
        "answers": hashlib.sha256(own + right.tobytes()).hexdigest(),
        "tokens": tokens,
        "truncated": count // 100,
        "effect": effect(name, count, tokens),
        "provenance": PROVENANCE,
        "layers": LAYERS,
        "shape": SHAPE,
        "run": name,
    }
    return ConfigurationResult(**{**given, **fields})


def timings(
    names: list[str], random: np.random.Generator, rounds: int = 5, noise: float = 0.004
) -> list[ConfigurationTiming]:
    tokens = 1000
    base = 10 * np.exp(random.normal(0, noise, rounds))
    found = []
    for name in names:
        gain = GAIN.get(name, GAIN.get(name[:2], 1.0))
        seconds = base if name == "k1_first" else 10 / gain * np.exp(random.normal(0, noise, rounds))
        ratios = (base / seconds).tolist()
        interval = median_interval(ratios)
        found.append(
            ConfigurationTiming(
                experiment="sweep",
                configuration=name,
                task=TASK,
                run="timing",
                control="k1_first",
                policy=policy(name),
                decode=decode(name),
                tokens=tokens,
                requests=16,
                forwards=400,
                seconds=tuple(seconds.tolist()),
                tokens_per_second=tokens / float(np.median(seconds)),
                speedup=MeasuredSpeedup(
                    median=float(np.median(ratios)),
                    low=interval.low,
                    high=interval.high,
                    coverage=interval.coverage,
                ),
                effect=effect(name, 16, tokens),
                answers=name,
                conditions=Conditions(load_before=1.0, other_processes=0, throttled=False),
                provenance=PROVENANCE,
                cores=2,
                layers=LAYERS,
            )
        )
    return found


def clean(seed: int = 0, rows: int = ROWS, folder: Path | None = None) -> Table:
    """A sweep in which everything is as it should be; with a folder its rows lie on disk."""
    random = np.random.default_rng(seed)
    found = outcomes(random, rows)
    entries = [entry(name, right, random) for name, right in found.items()]
    if folder is not None:
        entries = [replace(one, samples=write(folder, one, found[one.configuration])) for one in entries]
    experiment = AnalysedExperiment(name="sweep", control="k1_first", success=SUCCESS)
    return Table((experiment,), tuple(entries), tuple(timings(list(found), random)))


def write(folder: Path, one: ConfigurationResult, right: NDArray[np.bool_]) -> Path:
    """The rows of an entry as the store keeps them."""
    path = folder / f"{one.configuration}.jsonl"
    lines = (
        json.dumps(
            {
                "id": f"{TASK}/{number}",
                "correct": float(value),
                "prompt": f"Question {number}",
                "answer": "right" if value else f"wrong {one.configuration}",
                "target": "right",
            }
        )
        for number, value in enumerate(right)
    )
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def changed(table: Table, name: str, **fields: Any) -> Table:
    """The same table with other fields in one configuration's entry."""
    return spoiled(table, lambda one: one.configuration == name, **fields)


def spoiled(table: Table, which: Callable[[ConfigurationResult], bool], **fields: Any) -> Table:
    entries = tuple(replace(one, **fields) if which(one) else one for one in table.entries)
    return replace(table, entries=entries)


def retimed(table: Table, which: Callable[[ConfigurationTiming], bool], **fields: Any) -> Table:
    """The same table with other fields in some timings."""
    return replace(
        table, timings=tuple(replace(one, **fields) if which(one) else one for one in table.timings)
    )
