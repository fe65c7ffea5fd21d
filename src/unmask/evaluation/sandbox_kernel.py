"""Where a sandboxed process lives: another uid, empty namespaces, read-only mounts.

Knows system calls (by ctypes, no dependency). Does not know programs, verdicts or clocks.
A layer that the system refuses is reported as absent, never assumed; elsewhere than on Linux there is
only the change of uid.
"""

import ctypes
import errno
import os
import pwd
import stat
import sys
from collections.abc import Collection
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
