"""The benchmark of the store runs end to end on a few runs; figures are printed, never asserted."""

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "store.py"


def test_the_benchmark_counts_every_run_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT))["main"](["--runs", "20", "--samples", "2", "--repeats", "1"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    counted = {name: samples[0]["statuses"] for name, samples in document["measured"].items()}
    for store in ("without an index", "with an index"):
        for command in ("states", "status --json"):
            assert counted[f"{command}, {store}"] == {"done": 18, "failed": 1, "missing": 1}
    assert counted["states, empty store"] == {}
    assert document["sample_bytes"] > 2_000_000
