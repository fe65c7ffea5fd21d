"""Whether a process that wrote something still lives.

A process is known by host, boot, process namespace, number and start, the start counted from boot where the
system tells it: then a clock that is set back changes nothing. Knows nothing of runs.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

PROC = Path("/proc")


class ProcessMark(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a process among all that ever ran."""

    host: str | None = None
    """Name of the machine."""
    boot: str | None = None
    """Id that the machine drew when it started."""
    namespace: str | None = None
    """The namespace in which the number of the process counts."""
    pid: int | None = None
    """Number of the process."""
    pid_started: int | float | None = None
    """When the process started, in the system's own unit."""


def this_process() -> ProcessMark:
    """What identifies the running process."""
    return ProcessMark(
        host=socket.gethostname(),
        boot=_boot(),
        namespace=_namespace(),
        pid=os.getpid(),
        pid_started=started(os.getpid()),
    )


def slurm_ids() -> dict[str, str | None]:
    """What SLURM calls the running job; all None elsewhere."""
    names = {
        "job": "SLURM_JOB_ID",
        "array_job": "SLURM_ARRAY_JOB_ID",
        "array_task": "SLURM_ARRAY_TASK_ID",
        "restart": "SLURM_RESTART_COUNT",
        "node": "SLURMD_NODENAME",
        "partition": "SLURM_JOB_PARTITION",
    }
    return {name: os.environ.get(variable) for name, variable in names.items()}


def job_of(ids: Mapping[str, str | None]) -> str | None:
    """The job as squeue knows it: `17`, or `17_3` in an array; None without SLURM."""
    if ids.get("array_job"):
        return f"{ids['array_job']}_{ids.get('array_task')}"
    return ids.get("job")


def lives(process: ProcessMark) -> bool | None:
    """Whether the process still runs; None where this cannot be seen from here."""
    here = socket.gethostname(), _boot(), _namespace()
    if (process.host, process.boot, process.namespace) != here:
        return None
    if process.pid is None or process.pid_started is None:
        return False
    return started(process.pid) == process.pid_started


def started(pid: int) -> float | None:
    """When a living process started, in the system's own unit; None for one that is gone or only a zombie."""
    if PROC.joinpath("self/stat").exists():
        return _started_in_ticks(pid)
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def _started_in_ticks(pid: int) -> float | None:
    try:
        status = PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything, so fields are counted after its last bracket.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else float(fields[19])


def _boot() -> str | None:
    try:
        return PROC.joinpath("sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _namespace() -> str | None:
    try:
        return str(PROC.joinpath("self/ns/pid").readlink())
    except OSError:
        return None
