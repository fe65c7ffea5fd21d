"""One model-written program, run where it can do no harm: inside `bwrap`, within limits, until its last line.

bubblewrap gives the program a root of its own, no environment, no network and none of our processes. This module
adds limits and the nonce that proves that the last line was reached; it needs nothing but the standard library.
Where a user allows it, a program runs as a plain subprocess with the same limits (`unsafe`). Scores: `code_eval.py`.
"""

import inspect
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, gettempdir
from typing import Literal

from unmask.errors import UnmaskError

SandboxName = Literal["bubblewrap", "unsafe"]
TIME_LIMIT = 15.0
"""Processor seconds of a program under test; MBPP's slowest own solution, task 123, took six where this was set."""
PATIENCE = 3.0  # seconds on the wall for each second of processor time: waiting is no work
SETUP_SECONDS, TICK_SECONDS, TAIL_BYTES = 30.0, 0.05, 4096
OPEN_FILES, FILE_BYTES, FOLDER_BYTES, PROCESSES = 128, 32 << 20, 64 << 20, 32
UNUSED_UIDS = range(61184, 65520)
"""Ids that systemd hands out for a moment; a program that root starts gets one of them for itself."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache")
LIBRARIES = os.environ.get("LD_LIBRARY_PATH", "")
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": LIBRARIES}
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
UNSHARED = ("--unshare-net", "--unshare-pid", "--unshare-ipc")


@dataclass(frozen=True)
class ProgramOutcome:
    """How one program ended."""

    passed: bool
    """Only when its last line was reached: leaving early, with whatever exit code, is a failure."""
    reason: str
    """`passed`, `failed: <exception, signal or how>`, `timeout`, `memory` or `processes`."""
    stdout_tail: str = ""
    """The last 4096 bytes of what it printed, stderr included."""


def run_program(
    source: str, timeout: float = 3.0, memory_bytes: int = 1 << 30, sandbox: SandboxName = "bubblewrap"
) -> ProgramOutcome:
    """Execute `source` as a module of its own, for `timeout` seconds of processor time of all its processes.

    A busy machine fails no program thereby; one that sleeps instead is ended after PATIENCE times as long.
    """
    if not (0 < timeout < math.inf and memory_bytes >= 1 << 26):
        raise UnmaskError(f"A program needs more than 0 s and 64 MiB, not {timeout} s, {memory_bytes} bytes.")
    isolated, nonce = sandbox == "bubblewrap", os.urandom(16).hex().encode()
    uid = random.choice(UNUSED_UIDS) if isolated and os.getuid() == 0 else 0
    with ExitStack() as stack:
        program, output = (stack.enter_context(TemporaryFile()) for _ in range(2))
        program.write(source.encode("utf-8", "surrogatepass"))
        program.seek(0)
        ours, theirs = map(stack.enter_context, socket.socketpair())
        ours.send(nonce + b"\n")
        folder = "/box" if isolated else stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        arguments = json.dumps([_limits(timeout, memory_bytes, isolated), uid, theirs.fileno()])
        process = subprocess.Popen(
            [*(_bwrap(bool(uid)) if isolated else []), sys.executable, "-Iu", "-c", _INSIDE, arguments],
            stdin=program,
            stdout=output,
            stderr=output,
            cwd="/" if isolated else folder,
            env=ENVIRONMENT | {"HOME": folder, "TMPDIR": folder},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        messages, stopped = _watch(process, ours, timeout, memory_bytes)
        output.seek(-min(TAIL_BYTES, output.seek(0, os.SEEK_END)), os.SEEK_END)
        tail = output.read().decode(errors="replace")
    if messages[0] != b"ready":
        shown = (tail.strip().splitlines() or ["it gave no reason"])[-1]
        raise UnmaskError(f"The sandbox for model-written programs could not start: {shown}.")
    if stopped or nonce in messages:
        return ProgramOutcome(not stopped, stopped or "passed", tail)
    # A program can add lines to the messages, none of which makes it pass.
    code, reasons = process.returncode, [line for line in messages if line[:6] in (b"failed", b"memory")]
    with suppress(ValueError):
        reasons += [b"failed: " + signal.Signals(code - 128 if code > 0 else -code).name.encode()]
    return ProgramOutcome(False, (reasons or [b"failed: exited early"])[0].decode(errors="replace"), tail)


def _limits(timeout: float, memory_bytes: int, isolated: bool) -> list[tuple[int, int]]:
    """Hard limits of each process; what all of them use together is watched from outside."""
    wanted = {resource.RLIMIT_CPU: math.ceil(timeout) + 1, resource.RLIMIT_FSIZE: FILE_BYTES}
    wanted |= {resource.RLIMIT_NOFILE: OPEN_FILES, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        version = [int(part) for part in os.uname().release.split("-")[0].split(".")[:2]]
        counted_apart = isolated and (os.getuid() == 0 or version >= [5, 14])
        processes = PROCESSES if counted_apart else 4096  # else all the user's processes count
        wanted |= {resource.RLIMIT_AS: memory_bytes, resource.RLIMIT_NPROC: processes}
    hard = {kind: resource.getrlimit(kind)[1] for kind in wanted}
    return [(kind, min(value, hard[kind]) if hard[kind] >= 0 else value) for kind, value in wanted.items()]


@cache
def _bwrap(as_root: bool) -> list[str]:
    """The command in front of the interpreter. Later mounts lie over earlier ones; at last the root is sealed."""
    bwrap = shutil.which("bwrap") or "bwrap"
    shown = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=False).stdout
    version = [int(part) for part in shown.strip().rpartition(" ")[2].split(".") if part.isdigit()]
    command = [bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL", *UNSHARED]
    # Root takes a user id of its own instead of a namespace: limits on processes bind root in no namespace.
    if as_root:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", *(["--disable-userns"] if version >= [0, 8] else [])]
    command += [part for name in SYSTEM for part in ("--ro-bind-try", name, name)]
    command += ["--dir", "/dev", *(part for name in DEVICES for part in ("--dev-bind", name, name))]
    # The working folder is not /tmp: an interpreter that lies below /tmp would show there.
    for name in ("/box", "/tmp", "/dev/shm"):
        command += [*(["--size", str(FOLDER_BYTES)] if version >= [0, 7] else []), "--tmpfs", name]
    for name in _interpreter_folders():
        # Parents that bwrap makes unasked only root may enter.
        parents = [part for parent in reversed(Path(name).parents) for part in ("--dir", str(parent))]
        command += [*parents, "--ro-bind", name, name]
    return [*command, "--chdir", "/box", "--remount-ro", "/", "--"]


def _interpreter_folders() -> Iterator[str]:
    """Where Python and its packages lie; never a folder that holds the user's home or temporary files."""
    packages = [name for name in sys.path if Path(name).name in ("site-packages", "dist-packages")]
    real = str(Path(sys.executable).resolve().parents[1])
    private = [Path(name).resolve() for name in (os.path.expanduser("~"), gettempdir())]  # noqa: PTH111
    for name in dict.fromkeys([sys.base_prefix, sys.prefix, real, *packages, *LIBRARIES.split(":")]):
        path = Path(name).resolve()
        known = path.is_relative_to("/usr") or any(place.is_relative_to(path) for place in private)
        if name.startswith("/") and path.is_dir() and not known:
            yield name


def _inside(limits: list[tuple[int, int]], uid: int, verdict: int) -> None:
    """Limit this process and execute the program on stdin. The new interpreter knows nothing but this text."""
    import os
    import resource
    import sys
    from types import ModuleType

    source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for kind, value in limits:
        resource.setrlimit(kind, (value, value))
    if uid:
        for folder in ("/box", "/tmp", "/dev/shm"):
            os.chmod(folder, 0o777)  # noqa: PTH101
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.write(verdict, b"ready\n")
    # What is needed afterwards is bound first: programs replace functions.
    write, read, leave, getpid, me = os.write, os.read, os._exit, os.getpid, os.getpid()
    # Not "__main__", as in the Hugging Face metric: blocks for a command line do not run.
    module = ModuleType("program")
    sys.modules["program"], sys.argv = module, ["program"]
    line = b"memory\n"  # built beforehand: it may be all the memory there is
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)
        line = b""
    except BaseException as error:
        if not isinstance(error, MemoryError):
            line = b"failed: " + type(error).__name__[:80].encode() + b"\n"
    if getpid() == me:  # a forked copy of the program gets here too
        write(verdict, line or read(verdict, 64))
    leave(0)


_INSIDE = f"{inspect.getsource(_inside)}\nimport json, sys; _inside(*json.loads(sys.argv[1]))"


def _watch(
    process: "subprocess.Popen[bytes]", verdict: socket.socket, timeout: float, memory_bytes: int
) -> tuple[list[bytes], str]:
    """Wait for the end, or bring it about: the lines that came out of the program, and why it was stopped."""
    verdict.settimeout(TICK_SECONDS)
    messages, stopped, deadline = b"", "", time.monotonic() + SETUP_SECONDS
    try:
        while process.poll() is None and not stopped:
            with suppress(TimeoutError, ConnectionResetError, subprocess.TimeoutExpired):
                data = verdict.recv(TAIL_BYTES)
                if not data:
                    process.wait(TICK_SECONDS)
                deadline = deadline if messages else time.monotonic() + timeout * PATIENCE
                messages = (messages + data)[:TAIL_BYTES]
            stopped = _excess(_family(process.pid), deadline, timeout, memory_bytes)
    finally:  # the end of bubblewrap is that of all processes inside
        for pid in _family(process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    with suppress(OSError):
        messages += verdict.recv(TAIL_BYTES)
    return messages.split(b"\n"), stopped


def _family(pid: int) -> list[int]:
    """A process, its children, their children, and so on, as far as the system lists them."""
    members, queue = [], [pid]
    while queue:
        members.append(queue.pop())
        with suppress(OSError):
            for file in Path(f"/proc/{members[-1]}/task").glob("*/children"):
                queue += map(int, file.read_text().split())
    return members


def _excess(pids: list[int], deadline: float, timeout: float, memory_bytes: int) -> str:
    """What these processes, and those of their children that have ended, used too much of, if anything."""
    ticks = pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            held = Path(f"/proc/{pid}/statm").read_text().split()
            ticks, pages = ticks + sum(map(int, behind_name[11:15])), pages + int(held[1]) - int(held[2])
    if time.monotonic() > deadline or ticks > timeout * os.sysconf("SC_CLK_TCK"):
        return "timeout"
    is_full = pages * os.sysconf("SC_PAGE_SIZE") > memory_bytes
    return "memory" if is_full else "processes" if len(pids) > 2 * PROCESSES else ""


@cache
def bubblewrap_problem() -> str | None:
    """Why bubblewrap cannot be used here, found out once by running an empty program; None where it works."""
    if shutil.which("bwrap") is None:
        return "the command bwrap is not installed here"
    try:
        run_program("", timeout=10.0)
    except (UnmaskError, OSError) as error:
        return f"it does not work here ({str(error).rstrip('.')})"
    return None


def choose_sandbox(allow_unsafe: bool = False) -> SandboxName:
    """How programs run here: in bubblewrap where it works, unprotected only where that is allowed."""
    problem = bubblewrap_problem()
    if problem and not allow_unsafe:
        raise UnmaskError(
            f"Programs that the model writes run in bubblewrap, but {problem}; install the package bubblewrap where "
            "namespaces are permitted, or add --allow-unsafe-code to run programs without isolation."
        )
    return "unsafe" if problem else "bubblewrap"
