"""Where a sandboxed process lives (another uid, empty namespaces, read-only mounts) and what it may use.

Knows system calls (by ctypes, no dependency), rlimits, /proc and Landlock. Does not know programs, verdicts or
clocks. A layer that the system refuses is reported as absent, never assumed; elsewhere than on Linux there is
only the change of uid. Landlock does not mediate chmod and friends, and before its third version not truncation
either: read-only mounts do, which is why both are used where both exist.
"""

import ctypes
import errno
import os
import pwd
import resource
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PLATFORM: str = sys.platform  # as a plain string, so that all lines are type-checked everywhere
FOLDER_BYTES = 64 << 20
O_PATH = 0o10000000
NAMESPACES = {"network_namespace": 0x40000000, "pid_namespace": 0x20000000, "ipc_namespace": 0x08000000}
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    1 << 14,
    1 << 18,
)
HIDDEN_FOLDERS = ("/proc", "/run", "/dev/shm")  # other processes' environments, sockets, shared memory
PROCESSES, OPEN_FILES, FILE_BYTES = 32, 128, 32 << 20
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc")
READ_RIGHTS, FILE_RIGHTS = 0b1101, 0b110  # execute, read file, read folder; read and write one file
FS_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights each version of Landlock handles
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | None) -> int:
    """A libc function whose integers are all passed as longs; raises OSError when it returns -1."""
    if PLATFORM != "linux":
        raise OSError(errno.ENOSYS, "only on Linux")
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(getattr(_LIBC, name)(*values))
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def works(name: str, *arguments: int | bytes | None) -> bool:
    """Whether the system granted the call."""
    try:
        call(name, *arguments)
    except OSError:
        return False
    return True


def die_with_parent() -> None:
    """SIGKILL for this process when the one that started it is gone."""
    works("prctl", 1, 9, 0, 0, 0)


def adopt_orphans() -> None:
    """Descendants whose parent died become children of this process, whatever session they are in."""
    works("prctl", 36, 1, 0, 0, 0)


def needed(workdir: str) -> list[str]:
    """Folders a program must reach: those of the interpreter and its own."""
    paths = [sys.prefix, sys.base_prefix, *sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    return [path for path in dict.fromkeys([*paths, workdir]) if path.startswith("/") and Path(path).is_dir()]


def _closed_ancestor(path: str) -> str | None:
    """The outermost folder on the way to `path` that other users may not enter, if there is one."""
    way = [Path(path).resolve(), *Path(path).resolve().parents]
    return next((str(folder) for folder in reversed(way) if not folder.stat().st_mode & stat.S_IXOTH), None)


def _expose(workdir: str) -> None:
    """An interpreter below a private folder such as /root: hide that folder, show what is needed in it."""
    closed = {path: _closed_ancestor(path) for path in needed(workdir) if path != workdir}
    closed[workdir] = _closed_ancestor(str(Path(workdir).parent))
    hidden = sorted({folder for folder in closed.values() if folder})
    if not hidden:
        return
    call("unshare", NEW_MOUNTS)
    call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
    handles = {path: os.open(path, O_PATH) for path, folder in closed.items() if folder}
    for folder in hidden:
        call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", NO_SUID | NO_DEV, b"mode=755,size=1m")
    for path, handle in handles.items():
        real = Path(path).resolve()
        real.mkdir(parents=True, exist_ok=True)
        call("mount", f"/proc/self/fd/{handle}".encode(), os.fsencode(real), None, BIND | RECURSIVE, None)
        os.close(handle)


def become_nobody(workdir: str) -> bool:
    """Root gives up its identity: as root neither file permissions nor the process limit would bind."""
    if os.getuid() != 0:
        return False
    try:
        _expose(workdir)
        nobody = pwd.getpwnam("nobody")
        os.chown(workdir, nobody.pw_uid, nobody.pw_gid)
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    except (OSError, KeyError):
        return False
    works("prctl", 4, 1, 0, 0, 0)  # dumpable again, else /proc/self/uid_map stays root's
    return True


def enter_user_namespace() -> bool:
    """An own user namespace, the key to the others for ordinary users; identity stays what it was."""
    uid, gid = os.getuid(), os.getgid()
    if not works("unshare", NEW_USER):
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    return True


def leave_host(layers: Collection[str], workdir: str) -> set[str]:
    """For the supervisor: another uid and empty namespaces for its children; returns what was granted."""
    granted = set()
    # As root first: it may have namespaces where ordinary users may not.
    for name, flag in NAMESPACES.items():
        if name in layers and os.getuid() == 0 and works("unshare", flag):
            granted.add(name)
    if "nobody" in layers and become_nobody(workdir):
        granted.add("nobody")
    if "user_namespace" in layers and enter_user_namespace():
        granted.add("user_namespace")
    for name, flag in NAMESPACES.items():
        if name in layers and name not in granted and works("unshare", flag):
            granted.add(name)
    return granted


def _remount_read_only(mount: str) -> bool:
    path = mount.split()[4].encode().decode("unicode_escape")
    options = mount.split()[5].split(",")
    kept = {"nosuid": NO_SUID, "nodev": NO_DEV, "noexec": NO_EXEC}
    flags = REMOUNT | BIND | READ_ONLY | sum(flag for name, flag in kept.items() if name in options)
    try:
        call("mount", None, path.encode("latin-1"), None, flags, None)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR)  # not reachable from here anyway
    return True


def seal_mounts(workdir: str) -> bool:
    """All that is mounted becomes read-only, the folder of the program a small file system in memory."""
    if not works("unshare", NEW_MOUNTS):
        return False
    try:
        call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
        sealed = [_remount_read_only(line) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        options = f"mode=700,nr_inodes=4096,size={FOLDER_BYTES}".encode()
        call("mount", b"tmpfs", os.fsencode(workdir), b"tmpfs", NO_SUID | NO_DEV, options)
        for folder in HIDDEN_FOLDERS:
            if Path(folder).is_dir() and not Path(folder).is_symlink():
                call("mount", b"tmpfs", folder.encode(), b"tmpfs", READ_ONLY, b"size=4k")
    except OSError:
        return False
    return all(sealed)


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
