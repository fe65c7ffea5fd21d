"""A sweep of four runs on two slots: `torture_sweep.py STORE ITEMS`; exits with the number of runs without a result."""

import sys
from pathlib import Path

from unmask.launch import WorkerCommand, WorkerSlot, local_pool
from unmask.store import RunFolder, Store

WORKER = Path(__file__).with_name("torture_worker.py")


def sweep(root: Path, items: int) -> list[RunFolder]:
    """The runs, made if they are new."""
    store = Store.at(root)
    return [
        store.run(
            {"schema": 1, "kind": "accuracy", "task": {"name": "torture"}, "seed": seed, "items": items}
        )
        for seed in range(4)
    ]


def main() -> None:
    runs = sweep(Path(sys.argv[1]), int(sys.argv[2]))
    jobs = [
        WorkerCommand(run.id, run.folder, run.name, (sys.executable, str(WORKER), str(run.folder)))
        for run in runs
    ]
    with local_pool(jobs, [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")], pause=0.02) as events:
        for _event in events:
            pass
    sys.exit(sum(not job.done for job in jobs))


if __name__ == "__main__":
    main()
