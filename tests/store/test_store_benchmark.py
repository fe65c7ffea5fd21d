"""The benchmark of the store runs end to end on a few runs; figures are printed, never asserted."""

import json
import runpy
from pathlib import Path

import pytest

STATUSES = {"done": 18, "failed": 1, "missing": 1}
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "store.py"


def test_the_benchmark_counts_every_run_and_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT))["main"](["--runs", "20", "--samples", "2", "--repeats", "1"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    measured = document["measured"]
    for store in ("without an index", "with an index"):
        figures = measured[f"states, {store}"]
        assert {status: figures[status] for status in STATUSES} == STATUSES
    assert STATUSES.keys().isdisjoint(measured["states, empty store"])
    assert document["sample_bytes"] > 2_000_000
