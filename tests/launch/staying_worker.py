"""A worker without a model that stays: `staying_worker.py FOLDER` takes one folder after another from its starter.

A folder's file `order` says what it does there: `work`, `fail`, `die`, `unfit` (for a worker that is not fresh), `held`
(once), `stop` (end the run without a result), or `spent` (work, then end). What took a folder is in its file `pids`.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def take(folder: Path, is_fresh: bool) -> str:
    """Do what is ordered; the word to say."""
    order = (folder / "order").read_text()
    if order == "unfit" and not is_fresh:
        return "unfit"
    if order == "held":
        (folder / "order").write_text("work")
        return "held"
    with (folder / "pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    if order == "fail":
        sys.exit(3)
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if order != "stop":
        (folder / "result.json").write_text("{}")
    return "last" if order == "spent" else "free"


def main() -> None:
    talk = socket.socket(fileno=os.dup(0))
    lines = talk.makefile("rb")
    folder, is_fresh = Path(sys.argv[1]), True
    while (word := take(folder, is_fresh)) != "last":
        talk.sendall(word.encode() + b"\n")
        line = b"" if word == "unfit" else lines.readline()
        if not line:
            return
        folder, is_fresh = Path(json.loads(line)), False


if __name__ == "__main__":
    main()
