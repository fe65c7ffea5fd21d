"""A sweep of stubs on two slots: `stub_sweep.py STORE RUNS ITEMS`; exits with the number of runs without a result."""

import sys
from pathlib import Path

from stub_worker import identity

from unmask.launch import WorkerCommand, WorkerSlot, local_pool
from unmask.store import RunFolder, Store
from unmask.store.state import state_of

WORKER = Path(__file__).with_name("stub_worker.py")


def sweep(root: Path, runs: int, items: int) -> list[RunFolder]:
    """The runs, made if they are new."""
    store = Store.at(root)
    return [store.run(identity(seed, items)) for seed in range(runs)]


def main() -> None:
    runs = sweep(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    jobs = [
        WorkerCommand(run.id, run.folder, run.name, (sys.executable, str(WORKER), str(run.folder)))
        for run in runs
    ]
    slots = [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")]
    with local_pool(jobs, slots, held=is_held, pause=0.02) as events:
        for _event in events:
            pass
    sys.exit(sum(not job.done for job in jobs))


def is_held(job: WorkerCommand) -> bool:
    """Whether another runner's worker is at it, as `unmask run` judges it."""
    return state_of(RunFolder(job.folder)).status == "running"


if __name__ == "__main__":
    main()
