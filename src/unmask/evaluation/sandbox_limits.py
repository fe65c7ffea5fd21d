"""What a sandboxed process may use: memory, time, processes, files, and by Landlock which paths and ports.

Knows rlimits, /proc and Landlock. Does not know programs, verdicts or clocks.
Landlock does not mediate chmod and friends, and before its third version not truncation either: read-only
mounts do, which is why both are used where both exist.
"""

import os
import resource
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from unmask.evaluation.sandbox_kernel import O_PATH, call, needed, works

PROCESSES, OPEN_FILES, FILE_BYTES = 32, 128, 32 << 20
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc")
READ_RIGHTS, FILE_RIGHTS = 0b1101, 0b110  # execute, read file, read folder; read and write one file
FS_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights each version of Landlock handles


def children(pid: int) -> list[int]:
    """Process ids of the direct children; empty where the system does not list them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """Children, their children, and so on."""
    queue = children(pid)
    while queue:
        child = queue.pop()
        queue += children(child)
        yield child


def tells_seconds() -> bool:
    """Whether the system tells processor time."""
    return Path("/proc/self/stat").is_file()


def descendants_seconds(pid: int) -> float:
    """Processor time of all descendants together, with those that have ended: RLIMIT_CPU bounds each apart."""
    ticks = 0
    for child in descendants(pid):
        with suppress(OSError, ValueError, IndexError):
            behind_name = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, behind_name[11:15]))  # own user and system time, and that of the buried
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants_memory(pid: int) -> int:
    """Private bytes held by all descendants together: RLIMIT_AS alone bounds each of them apart."""
    total = 0
    for child in descendants(pid):
        with suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{child}/statm").read_text().split()
            total += (int(pages[1]) - int(pages[2])) * resource.getpagesize()
    return total


def limit_resources(memory_bytes: int, cpu_seconds: int, others: int) -> None:
    """Hard limits. Processes are counted per user: `others` are those that are there already."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_NPROC: others + PROCESSES,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if sys.platform != "linux":
        del limits[resource.RLIMIT_NPROC]  # without /proc `others` is not known
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            if sys.platform == "linux":  # macOS knows some limits by name only
                raise


def counts_processes_apart(granted: Collection[str]) -> bool:
    """Whether this user namespace has a process count of its own (Linux 5.14)."""
    major, minor = os.uname().release.split(".")[:2]
    return "user_namespace" in granted and (int(major), int("".join(filter(str.isdigit, minor)))) >= (5, 14)


def tasks_of_user() -> int:
    """Threads of this uid, as the process limit counts them."""
    total, me = 0, os.getuid()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            total += sum(1 for _ in (folder / "task").iterdir()) if folder.stat().st_uid == me else 0
    return total


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            handle = os.open(path, O_PATH)
            call("syscall", 445, ruleset, 1, struct.pack("=Qi", rights, handle), 0)
            os.close(handle)


def enter_landlock(workdir: str) -> int:
    """Reads where Python lives, writes in `workdir`, no TCP, no signals outside; its version, or 0."""
    try:
        version = call("syscall", 444, None, 0, 1)
        every = (1 << FS_RIGHTS_BY_VERSION.get(version, 16)) - 1
        size = 8 if version < 4 else 16 if version < 6 else 24
        ruleset = call("syscall", 444, struct.pack("=QQQ", every, 0b11, 0b11)[:size], size, 0)
        _allow(ruleset, [*SYSTEM_FOLDERS, *needed(workdir)], READ_RIGHTS)
        _allow(ruleset, ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"], FILE_RIGHTS)
        _allow(ruleset, [workdir], every)
        call("syscall", 446, ruleset, 0)
    except OSError:
        return 0
    os.close(ruleset)
    return version


def drop_privileges() -> None:
    """No capability, of a namespace's either, and no way to gain one by executing a file."""
    works("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))


def forbid_new_privileges() -> None:
    """Set-uid files lose their effect; Landlock demands it of ordinary users."""
    works("prctl", 38, 1, 0, 0, 0)
