"""How long `unmask status` takes on many runs, and how much memory: with an index, without one, and beside samples.

Makes a store of invented runs in a temporary folder, a thousand to an experiment: most are done, some have failed,
some wait. Every figure is that of a process of its own from its start to its end; an empty store tells what Python
and imports take. `states` are the statuses alone, `status --json` and `status` the verb with document and table.

    python benchmarks/store.py --runs 10000

The table is Markdown; the last line is one JSON document.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.store.environment import environment
from unmask.store.experiments import Experiment, Member
from unmask.store.files import canonical
from unmask.store.store import folder_name, run_id

CHILD = """
import collections, io, json, resource, sys
if sys.argv[1] == "states":
    from unmask.store.state import states
    from unmask.store.store import Store
    statuses = collections.Counter(state.status for _, state in states(Store.at(sys.argv[2])))
else:
    from unmask.cli import app
    terminal, sys.stdout = sys.stdout, io.StringIO()
    app([*sys.argv[1].split(), "--store", sys.argv[2]], standalone_mode=False)
    shown, sys.stdout = sys.stdout.getvalue(), terminal
    experiments = json.loads(shown) if "--json" in sys.argv[1] else []
    statuses = collections.Counter(run["status"] for each in experiments for run in each["runs"])
used = resource.getrusage(resource.RUSAGE_SELF)
cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(json.dumps({"cpu_seconds": cpu, "megabytes": memory, "statuses": statuses}))
"""
COMMANDS = ("states", "status --json", "status")
MEMBERS = 1000
"""Runs of an experiment."""


def identity(number: int) -> dict[str, Any]:
    """One of the size that a recipe gives."""
    return {
        "schema": 1,
        "kind": "accuracy",
        "engine": 1,
        "weights": "0" * 64,
        "dtype": None,
        "decode": {
            "threshold": 0.9,
            "sub_block_size": 8,
            "block_cache": True,
            "max_new_tokens": 512,
            "seed": number,
        },
        "policy": {
            "kind": "layer_reuse",
            "k": 2,
            "layers": "middle",
            "unit": "residual",
            "on": ["sub"],
            "warmup": 1,
        },
        "task": {
            "name": "gsm8k",
            "limit": None,
            "num_fewshot": None,
            "generation": {},
            "version": {"gsm8k": 3.0},
            "rows_sha256": {"gsm8k": "1" * 64},
            "rows": {"gsm8k": 1319},
        },
    }


def result(number: int) -> dict[str, Any]:
    known = identity(number)
    ledger = {"requests": 1319, "layer_calls": [9000] * 28, "reuse_fraction": 0.2, "inactive": None}
    return {
        "schema": 1,
        "id": run_id(known),
        "kind": "accuracy",
        "identity": known,
        "attempt": "0001",
        "task": "gsm8k",
        "metric": "exact_match,flexible-extract",
        "value": 0.75,
        "stderr": 0.01,
        "rows": 1319,
        "effect": {"generation": ledger},
        "answers": {"sha256": "2" * 64, "count": 1319, "tokens": 181000, "truncated": 3, "resumed": 0},
        "seconds": 812.3,
        "finished": "2026-01-01T00:00:00+00:00",
        "environment": {"commit": "3" * 40, "dirty": False, "host": "node1", "gpus": [{"name": "a GPU"}]},
    }


def fill(root: Path, runs: int) -> None:
    """Nine of ten runs are done, the others have failed or wait; written without the store's durability."""
    for number in range(runs):
        known = identity(number)
        folder = root / "runs" / folder_name(known)
        attempt = folder / "attempts" / "0001"
        attempt.mkdir(parents=True)
        (folder / "run.json").write_bytes(canonical({"schema": 1, "id": run_id(known), "identity": known}))
        if number % 10 < 9:
            (folder / "result.json").write_bytes(canonical(result(number)))
        elif number % 20 < 10:
            (attempt / "attempt.json").write_bytes(canonical({"schema": 1, "host": "node1", "pid": 1}))
            (attempt / "failure.json").write_bytes(canonical({"schema": 1, "reason": "no memory"}))
        else:
            attempt.rmdir()


def add_samples(root: Path, files: int) -> int:
    """Give some runs samples of a megabyte; returns their bytes."""
    line = canonical({"id": "gsm8k/0", "answer": "x" * 1000}) + b"\n"
    chosen = sorted(root.glob("runs/*/result.json"))[:files]
    for result_file in chosen:
        (result_file.parent / "attempts" / "0001" / "samples.jsonl").write_bytes(line * 1000)
    return len(chosen) * 1000 * len(line)


def add_experiments(root: Path, runs: int) -> None:
    """Write down which runs each experiment stands for."""
    for start in range(0, runs, MEMBERS):
        members = [_member(number) for number in range(start, min(start + MEMBERS, runs))]
        name = f"experiment_{start // MEMBERS}"
        experiment = Experiment(
            name=name,
            recipe="recipe.toml",
            recipe_text="",
            recipe_sha256="",
            planned="",
            control=None,
            members=tuple(members),
        )
        folder = root / "experiments" / name
        folder.mkdir(parents=True)
        (folder / "experiment.json").write_bytes(msgspec.json.encode(experiment))


def _member(number: int) -> Member:
    known = identity(number)
    return Member(
        configuration=f"seed_{number}",
        task="gsm8k",
        limit=None,
        id=run_id(known),
        folder=folder_name(known),
        kind="accuracy",
    )


def measure(command: str, root: Path) -> dict[str, Any]:
    """Seconds, seconds of processor and peak of memory of one process, and the statuses that it counted."""
    start = time.perf_counter()
    child = [sys.executable, "-c", CHILD, command, str(root)]
    done = subprocess.run(child, capture_output=True, text=True, check=True)
    return {"seconds": time.perf_counter() - start, **json.loads(done.stdout)}


def machine() -> dict[str, Any]:
    """What a reader of a figure must know about where it was taken."""
    known = environment(device="cpu", dtype=None, threads=1, batch_size=None, seed=None, cuda=None)
    return {name: getattr(known, name) for name in ("commit", "dirty", "python", "system", "cpu", "cores")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=100, help="runs with a megabyte of samples each")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    measured: dict[str, list[dict[str, Any]]] = {}

    def measure_all(store: str, root: Path, fresh_index: bool = False) -> None:
        """Measure each command on a store in its present state."""
        for command in COMMANDS:
            samples = measured[f"{command}, {store}"] = []
            for _ in range(options.repeats):
                if fresh_index:
                    (root / "index.json").unlink(missing_ok=True)
                samples.append(measure(command, root))

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "results"
        measure_all("empty store", root)
        start = time.perf_counter()
        fill(root, options.runs)
        add_experiments(root, options.runs)
        print(f"{options.runs} runs made in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        measure_all("without an index", root, fresh_index=True)
        measure_all("with an index", root)
        size = add_samples(root, options.samples)
        measure_all("and beside samples", root)
        index = (root / "index.json").stat().st_size
    print(
        f"{options.runs} runs, an index of {index / 1e6:.1f} MB, {size / 1e6:.0f} MB of samples; the best of each\n"
    )
    print("| command, store | seconds | CPU seconds | peak MB |\n|---|---|---|---|")
    for name, samples in measured.items():
        best = {
            key: min(sample[key] for sample in samples) for key in ("seconds", "cpu_seconds", "megabytes")
        }
        print(f"| {name} | {best['seconds']:.2f} | {best['cpu_seconds']:.2f} | {best['megabytes']:.0f} |")
    document = {"benchmark": "store", "runs": options.runs, "index_bytes": index, "sample_bytes": size}
    print(json.dumps({**document, "machine": machine(), "measured": measured}))


if __name__ == "__main__":
    main()
