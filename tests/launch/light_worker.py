"""A worker without a model: `light_worker.py FOLDER ITEMS SECONDS` answers items slowly and resumes from its files.

Needs the standard library only, so that it starts at once. What it sees of the world is in `seen-*.json`.
"""

import json
import os
import sys
import time
from pathlib import Path

SHOWN = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURMD_NODENAME")


def work(folder: Path, items: int, seconds: float) -> None:
    begin = time.time()
    attempt = f"{time.time_ns()}-{os.getpid()}"
    seen = {name: os.environ.get(name) for name in SHOWN}
    seen |= {
        "pid": os.getpid(),
        "begin": begin,
        "marker": os.environ.get("MARKER"),
        "secret": "HF_TOKEN" in os.environ,
    }
    (folder / f"seen-{attempt}.json").write_text(json.dumps(seen))
    known = {line for file in folder.glob("items-*") for line in file.read_text().splitlines()}
    with (folder / f"items-{attempt}").open("a") as answers:
        for item in map(str, range(items)):
            if item not in known:
                time.sleep(seconds)
                answers.write(item + "\n")
                answers.flush()
                print("item", item, flush=True)
    finished = folder / f".result-{attempt}"
    result = {"attempt": attempt, "begin": begin, "end": time.time(), "resumed": len(known)}
    finished.write_text(json.dumps(result))
    try:
        os.link(finished, folder / "result.json")
    except FileExistsError:
        print("another one was first")
    finished.unlink()


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
