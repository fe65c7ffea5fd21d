"""The table of operations is made by one command; the device it counts on needs a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "operations.py"


@pytest.mark.slow
def test_operations_a_layer_are_counted() -> None:
    command = [sys.executable, str(SCRIPT), "--families", "autoregressive"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    prefill, commit = json.loads(printed[-1])["rows"]
    assert prefill["forward"] == "prefill"
    assert commit["forward"] == "commit"
    assert commit["operations a layer"] == 18, "14, and 4 to normalise queries and keys"
    assert (commit["uploads"], commit["synchronisations"]) == (1, 1)
    assert printed[2].startswith("| autoregressive | baseline | prefill |")
