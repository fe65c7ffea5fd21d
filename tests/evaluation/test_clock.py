"""The throughput contract on a clock that the tests wind themselves, and what the machine did meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from unmask.cost import Ledger, Sharing, Work
from unmask.engine.events import Finished, Generation, StepEvent
from unmask.engine.score import Score, Scores
from unmask.engine.step_plan import FULL, Kind
from unmask.evaluation.clock import MachineState, Meter, waiting_for

IDLE, HOT = "0x0000000000000001", "0x0000000000000021"


class FakeClock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def ledger(*kinds: str) -> Ledger:
    found = Ledger(2)
    for kind in kinds:
        found.add(Work(kind, rows=32, pairs=32 * 32, reads=1))
    return found


def decoding(clock: FakeClock) -> Iterator[StepEvent | Finished]:
    """A prefill of 3 seconds, a step of 2, and an answer of four tokens, stop token included."""
    clock.work(3)
    yield StepEvent(0, Kind.PREFILL, FULL, 0, (), (), ())
    clock.work(2)
    yield StepEvent(0, Kind.BLOCK, FULL, 1, (32, 33), (5, 6), (0.9, 0.9))
    work = ledger("prefill", "block")
    yield Finished(0, Generation([5, 6, 7, 1], "abc", "stop", work, 1, Sharing()))
    clock.work(1)


def test_only_the_wait_for_events_is_inside_the_clock() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    for _ in meter.timed(decoding(clock)):
        clock.work(50)  # drawing, checking answers, writing caches
    found = meter.decoding
    assert (found.prefill_seconds, found.decode_seconds) == (3, 3)
    assert (found.requests, found.tokens, found.forwards) == (1, 4, 2)
    summary = meter.summary()["decoding"]
    assert summary["tokens_per_second"] == 4 / 6
    assert summary["tokens_per_decode_second"] == 4 / 3
    assert summary["tokens_per_forward"] == 2


class Device:
    """Takes work at once and does it later: what it was given is done when somebody waits for it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queued = 0.0

    def give(self, seconds: float) -> None:
        self.queued += seconds

    def wait(self) -> None:
        self.clock.work(self.queued)
        self.queued = 0.0


def decoding_on(device: Device) -> Iterator[StepEvent | Finished]:
    """A prefill of 3 seconds of which no token is read, a step of 2 whose tokens are read, and a commit of 1."""
    device.give(3)
    yield StepEvent(0, Kind.PREFILL, FULL, 0, (), (), ())
    device.give(2)
    device.wait()
    yield StepEvent(0, Kind.BLOCK, FULL, 1, (32, 33), (5, 6), (0.9, 0.9))
    device.give(1)
    yield Finished(0, Generation([5, 6], "ab", "length", ledger("prefill", "block"), 1, Sharing()))


def test_a_device_that_works_on_is_waited_for_where_the_clock_is_read() -> None:
    clock = FakeClock()
    device = Device(clock)
    meter = Meter(clock, device.wait)
    for _ in meter.timed(decoding_on(device)):
        clock.work(50)
    assert (meter.decoding.prefill_seconds, meter.decoding.decode_seconds) == (3, 3)

    def score() -> Scores:
        device.give(4)
        return Scores([Score(-1.0, True, 0)], [ledger("block")], [Sharing()], None)

    device.give(10)
    meter.scored(score, tokens=1)
    assert meter.scoring.seconds == 4
    with meter.phase("loading"):
        device.give(6)
    assert meter.phases == {"loading": 6}


def test_every_kind_of_device_is_waited_for_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for name in ("cuda:1", "mps", "cpu"):
        waiting_for(torch.device(name))()
    assert waited == [torch.device("cuda:1"), "mps"]


def test_other_phases_are_told_apart_even_when_they_fail() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    with meter.phase("loading"):
        clock.work(7)

    def fail() -> None:
        clock.work(2)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"), meter.phase("tokenising"):
        fail()
    assert meter.summary() == {"seconds_outside_the_clock": {"loading": 7, "tokenising": 2}}


def test_scoring_has_figures_of_its_own() -> None:
    clock = FakeClock()
    meter = Meter(clock)

    def score() -> Scores:
        clock.work(4)
        found = [Score(-1.0, True, 0), Score(-2.0, False, 0)]
        return Scores(found, [ledger("prefill", "block", "sub")], [Sharing()], None)

    meter.scored(score, tokens=6)
    summary = meter.summary()["scoring"]
    assert summary == {
        "requests": 2,
        "tokens": 6,
        "forwards": 3,
        "rows": 96,
        "seconds": 4,
        "requests_per_second": 0.5,
        "tokens_per_second": 1.5,
    }
    assert "decoding" not in meter.summary()


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


def test_processor_time_of_other_processes_is_read() -> None:
    busy = "import time\nwhile time.process_time() < 0.4: pass\nprint(1, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        spent = MachineState.now().spent
        process.communicate(b"\n")
    assert spent[process.pid] >= 0.3
    assert os.getpid() not in spent


def test_processes_that_work_meanwhile_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over ten seconds one process works for five, one for one, and one that is new for three."""
    clock = FakeClock()
    seconds = {11: 100.0, 12: 0.0}

    def processes(_: list[str]) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, info={"cpu_times": SimpleNamespace(user=spent, system=0.0)})
            for pid, spent in seconds.items()
        ]

    monkeypatch.setattr(psutil, "process_iter", processes)
    monkeypatch.setattr(time, "monotonic", clock)
    before = MachineState.now()
    clock.work(10)
    seconds |= {11: 105.0, 12: 1.0, 13: 3.0}
    found = before.until_now()
    assert (found.other_processes, found.other_cpu_percent) == (2, 90.0)
