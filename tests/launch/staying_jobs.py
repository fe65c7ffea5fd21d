"""Jobs of the worker that stays, and which process took them."""

import sys
from pathlib import Path

from unmask.launch import WorkerCommand

WORKER = Path(__file__).with_name("staying_worker.py")


def staying_jobs(root: Path, *orders: str, group: str | None = "model") -> list[WorkerCommand]:
    jobs = []
    for number, order in enumerate(orders):
        folder = root / f"{group}{number}"
        folder.mkdir()
        (folder / "order").write_text(order)
        argv = (sys.executable, "-I", "-S", str(WORKER), str(folder))
        jobs.append(WorkerCommand(folder.name, folder, folder.name, argv, group=group))
    return jobs


def taken(jobs: list[WorkerCommand]) -> list[int]:
    """Which worker took each job, numbered in the order in which they began; each took it once."""
    pids = [(job.folder / "pids").read_text().split() for job in jobs]
    assert all(len(each) == 1 for each in pids), pids
    order = list(dict.fromkeys(each[0] for each in pids))
    return [order.index(each[0]) for each in pids]
