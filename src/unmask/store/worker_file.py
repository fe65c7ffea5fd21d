"""A worker's one file, `workers/<name>.json` in the store: which run it holds now. It is gone when the worker ends.

A worker takes several runs, so that it lives says nothing of the attempts it has made: it is at the one whose run its
file names. What is left by a worker that was killed is taken away by the next one on its machine.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from re import sub
from typing import Annotated, Self

import msgspec

from unmask.errors import UnmaskError
from unmask.store.files import canonical, make_folder, read_struct, write_atomically
from unmask.store.process import ProcessMark, job_of, lives, slurm_ids, this_process

WORKERS = "workers"
TWINS = "twins"
"""In a run's folder: runs of twins, of which each answers a few rows to show that it is the same."""
WorkerName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")]
"""Names a worker's file, and nothing outside of the store."""


class HeldRun(ProcessMark, frozen=True, kw_only=True):
    """A worker's file: the process, and the run that it speaks for."""

    schema: int = 1
    """Version of the meaning of these fields."""
    run: str | None = None
    """Id of the run that the worker holds; null between two runs."""
    job: str | None = None
    """The SLURM job of the worker, as squeue knows it; null elsewhere."""


class WorkerFile:
    """Written by its worker alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.name = file.stem

    @classmethod
    def create(cls, store: Path) -> Self:
        """A file with a name that no other worker has."""
        folder = store / WORKERS
        make_folder(folder)
        _sweep(folder)
        host = sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname()).strip("-.")[:100] or "host"
        made = cls(folder / f"{host}-{os.getpid()}-{time.time_ns()}.json")
        made.hold(None)
        return made

    def hold(self, run: str | None) -> None:
        """Speak for this run from now on, and for no other one."""
        held = HeldRun(**msgspec.structs.asdict(this_process()), run=run, job=job_of(slurm_ids()))
        write_atomically(self._file, canonical(held) + b"\n", durable=False)

    def close(self) -> None:
        """Speak for nothing any more; a file that cannot be taken away speaks for a process that is gone."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def store_of(run: Path) -> Path:
    """The store that a run's folder lies in; a twin's lies in that of the run that stands for it."""
    return run.parents[3 if run.parent.name == TWINS else 1]


def held_run(store: Path, worker: str) -> str | None:
    """The run that a worker holds, as its file says; None where there is no such file, or it is damaged."""
    held = _read(store / WORKERS / f"{worker}.json")
    return None if held is None else held.run


def runs_of_jobs(store: Path) -> Mapping[str, str | None]:
    """The run that each SLURM job holds, for the jobs whose workers have begun."""
    # A job that was requeued may have left the file of its earlier worker; the name ends with its time.
    files = sorted((store / WORKERS).glob("*.json"), key=lambda file: file.stem.rpartition("-")[2])
    held = [_read(file) for file in files]
    return {each.job: each.run for each in held if each is not None and each.job is not None}


def _read(file: Path) -> HeldRun | None:
    try:
        return read_struct(file, HeldRun, "")
    except UnmaskError:
        return None


def _sweep(folder: Path) -> None:
    """Take away what workers of this machine have left that were killed."""
    with suppress(OSError):  # what stays speaks for nobody
        for file in folder.glob("*.json"):
            held = _read(file)
            if held is not None and lives(held) is False:
                file.unlink(missing_ok=True)
