"""The engine on a pretended device, in a process of its own: what a GPU would be asked to do, checked without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
POLICIES_ON_FAMILIES = "policies on families"
CHOSEN = {
    "what is asked of the device": ["device/on_device.py"],
    "families": ["device/on_families.py", "-k", "not every_policy"],
    POLICIES_ON_FAMILIES: ["device/on_families.py", "-k", "every_policy"],
    "golden vectors": [
        "engine/test_golden.py",
        "-k",
        "single_len33 or single_stop1 or single_mqa or reuse_output_k1",
    ],
    "oracles": ["engine/test_brute_force.py", "-k", "exactly_one_block or beside_a_block"],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == POLICIES_ON_FAMILIES)) for name in CHOSEN],
)
def test_on_a_pretended_device(name: str) -> None:
    file, *options = CHOSEN[name]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        str(TESTS / file),
        *options,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment["UNMASK_TEST_DEVICE"] = "pretended"
    done = subprocess.run(
        command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
