"""Jobs of the light worker, and what they left behind."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from unmask.launch import WorkerCommand

WORKER = Path(__file__).with_name("light_worker.py")


def light_job(folder: Path, items: int = 1, seconds: float = 0.0) -> WorkerCommand:
    """A job that answers so many items, each in so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = (sys.executable, "-I", "-S", str(WORKER), str(folder), str(items), str(seconds))
    return WorkerCommand(run=folder.name, folder=folder, label=folder.name, argv=argv)


def light_jobs(root: Path, count: int, items: int = 1, seconds: float = 0.0) -> list[WorkerCommand]:
    return [light_job(root / f"run{number}", items, seconds) for number in range(count)]


def script_job(folder: Path, script: str) -> WorkerCommand:
    """A job that runs lines of Python, its folder in `sys.argv[1]`."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = (sys.executable, "-I", "-S", "-c", script, str(folder))
    return WorkerCommand(run=folder.name, folder=folder, label=folder.name, argv=argv)


def seen(job: WorkerCommand) -> list[dict[str, Any]]:
    """What each attempt saw, in their order."""
    return [json.loads(file.read_text()) for file in sorted(job.folder.glob("seen-*.json"))]


def answered(job: WorkerCommand) -> list[str]:
    """All answers of all attempts."""
    return [line for file in sorted(job.folder.glob("items-*")) for line in file.read_text().splitlines()]


def result(job: WorkerCommand) -> dict[str, Any]:
    found = json.loads((job.folder / "result.json").read_text())
    assert isinstance(found, dict)
    return found


def wait_until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Look again and again; the limit is only there so that a failure ends."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
