"""What is written down about a machine while a clock runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.evaluation.conditions import MachineState

IDLE, HOT = "0x0000000000000001", "0x0000000000000021"


def fake_smi(folder: Path, *reasons: str) -> None:
    """An nvidia-smi that names one reason for throttling for each GPU."""
    lines = "\n".join(f"1350, 2100, {reason}, 71, 98" for reason in reasons)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<END\n{lines}\nEND\n")
    program.chmod(0o755)


def test_without_a_gpu_nothing_is_said_about_clocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = MachineState.now().until_now()
    assert found.clocks == {"before": [], "after": []}
    assert found.throttled is None
    assert found.load_before >= 0
    assert found.other_processes >= 0


@pytest.mark.parametrize("reasons, throttled", [((IDLE,), False), ((IDLE, HOT), True), (("[N/A]",), None)])
def test_throttling_is_told_from_idling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reasons: tuple[str, ...], throttled: bool | None
) -> None:
    fake_smi(tmp_path, *reasons)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = MachineState.now().until_now()
    assert found.throttled is throttled
    assert [reading["clocks.sm"] for reading in found.clocks["after"]] == ["1350"] * len(reasons)


def test_a_broken_program_is_no_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert MachineState.now().until_now().clocks["before"] == []


def test_a_process_that_works_meanwhile_is_seen() -> None:
    busy = (
        "import time; end = time.process_time() + 0.4\n"
        "while time.process_time() < end: pass\n"
        "print(1, flush=True); input()"
    )
    before = MachineState.now()
    process = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        found = before.until_now()
        process.communicate(b"\n")
    assert found.other_processes >= 1
    assert found.other_cpu_percent > 0
