"""Runs one untrusted program: a supervisor watches, a small init reaps, a confined worker executes.

    supervisor   keeps clock, memory total and verdict; outside the namespaces, out of the program's reach
    └─ init      first process of the pid namespace: when it ends, the kernel ends all others in there
       └─ worker confines itself, then executes the program

Started by `sandbox.py` as `python -I`; the program comes on stdin, the report leaves on stdout, both as JSON.
A pass is proved by a nonce that the supervisor puts into a pipe after the worker was born and that the
worker relays only when the last line of the program has run: no exit code and no output can imitate it.
Deliberate forgery from inside (finding the descriptors) is possible in principle and not guarded against.
"""

import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from unmask.evaluation import sandbox_kernel as kernel

SETUP_SECONDS, SWEEP_SECONDS, TICK_SECONDS = 10.0, 5.0, 0.05
TAIL_BYTES, LINE_BYTES = 4096, 4096
# Loaded before reading is restricted: their shared libraries may lie anywhere (Spack, modules of a cluster).
PRELOADED = ("bz2", "hashlib", "lzma", "zlib")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run and within which bounds."""

    source: str
    workdir: str
    timeout: float
    """Seconds of processor time."""
    patience: float
    """Seconds on the wall."""
    memory_bytes: int
    layers: list[str]


@dataclass(kw_only=True)
class Watch:
    """What the supervisor has learnt so far."""

    nonce: bytes
    ready: dict[str, Any] | None = None
    failure: str = "exited early"
    stopped: str = ""
    sealed: bool = False
    tail: bytes = b""
    pending: bytes = b""
    deadline: float = field(default_factory=lambda: time.monotonic() + SETUP_SECONDS)

    def read_line(self, line: bytes, patience: float) -> None:
        """One message of init or worker; the program can add lines, none of which makes it pass."""
        word, _, rest = line.partition(b" ")
        if line == self.nonce:
            self.sealed = True
        elif word == b"ready" and self.ready is None:
            self.ready = json.loads(rest)
            self.deadline = time.monotonic() + patience
        elif word == b"memory":
            self.stopped = "memory"
        elif word == b"raised":
            self.failure = rest.decode(errors="replace")
        elif word == b"signal":
            self.failure = signal.Signals(int(rest)).name
            self.stopped = "timeout" if self.failure == "SIGXCPU" else self.stopped

    def read_verdict(self, data: bytes, patience: float) -> None:
        """Bytes of the verdict pipe, cut into lines."""
        *lines, rest = (self.pending + data).split(b"\n")
        self.pending = rest[-LINE_BYTES:]
        for line in lines:
            with suppress(ValueError):
                self.read_line(line, patience)


def execute(source: str, verdict: int, seal: int) -> NoReturn:
    """The worker's last act. What it needs afterwards is bound first: programs replace functions."""
    write, read, leave, getpid, me = os.write, os.read, os._exit, os.getpid, os.getpid()
    # Not "__main__", as in the Hugging Face metric: blocks for a command line do not run.
    module = ModuleType("program")
    sys.modules["program"], sys.argv = module, ["program"]
    line, passed = b"memory\n", False
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)
        passed = True
    except MemoryError:
        pass  # the line is there already: building one may take more memory
    except BaseException as error:
        line = b"raised " + type(error).__name__[:80].encode() + b"\n"
    with suppress(BaseException):
        sys.stdout.flush()
    if getpid() == me:  # a forked copy of the program gets here too
        write(verdict, read(seal, LINE_BYTES) if passed else line)
    leave(0)


def confine(program: Program, granted: set[str], others: int) -> dict[str, Any]:
    """Do what must be done from inside the worker, and return what protects it, by layer."""
    if "mount_namespace" in program.layers and kernel.seal_mounts(program.workdir):
        granted = granted | {"mount_namespace"}
    os.chdir(program.workdir)
    kernel.limit_resources(program.memory_bytes, int(program.timeout) + 2, others)
    kernel.forbid_new_privileges()
    landlock = kernel.enter_landlock(program.workdir) if "landlock" in program.layers else 0
    kernel.drop_privileges()
    kernel.die_with_parent()
    if not os.access(os.__file__, os.R_OK):  # every program would fail, and nobody would know why
        raise OSError("the sandboxed user cannot read Python's standard library")
    counted = sys.platform == "linux" and os.getuid() != 0
    return {"layers": sorted(granted), "landlock": landlock, "counts_processes": counted}


def work(program: Program, granted: set[str], others: int, verdict: int, seal: int) -> NoReturn:
    """The worker: confined, then executing."""
    try:
        report = confine(program, granted, others)
        os.write(verdict, b"ready " + json.dumps(report).encode() + b"\n")
    except BaseException as error:
        os.write(verdict, f"raised {error}\n".encode())
        os._exit(1)
    execute(program.source, verdict, seal)


def init(program: Program, granted: set[str], others: int, pipes: dict[str, tuple[int, int]]) -> NoReturn:
    """Start the worker, reap dead processes, report how the worker ended, and end with it."""
    os.setsid()
    kernel.die_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(pipes["output"][1], 1)
    os.dup2(pipes["output"][1], 2)
    for unneeded in (pipes["output"][0], pipes["verdict"][0], pipes["life"][0], pipes["seal"][1]):
        os.close(unneeded)
    worker = os.fork()
    if worker == 0:
        os.close(pipes["life"][1])
        work(program, granted, others, pipes["verdict"][1], pipes["seal"][0])
    while True:
        pid, status = os.wait()
        if pid == worker:
            if os.WIFSIGNALED(status):
                os.write(pipes["verdict"][1], b"signal %d\n" % os.WTERMSIG(status))
            os._exit(0)


def drain(watch: Watch, program: Program, pipe: str, handle: int) -> bool:
    """Read what a pipe holds, and return False at its end. Of the output only the tail is kept."""
    try:
        data = os.read(handle, 1 << 16)
    except BlockingIOError:
        return False
    if pipe == "output":
        watch.tail = (watch.tail + data)[-TAIL_BYTES:]
    elif pipe == "verdict":
        watch.read_verdict(data, program.patience if kernel.tells_seconds() else program.timeout)
    return bool(data)


def observe(watch: Watch, program: Program, readers: dict[str, int]) -> None:
    """Watch until init is gone (its end of `life` closes), time is up or memory is spent."""
    with selectors.DefaultSelector() as selector:
        for pipe, handle in readers.items():
            selector.register(handle, selectors.EVENT_READ, pipe)
        while not watch.stopped:
            for key, _ in selector.select(TICK_SECONDS):
                if not drain(watch, program, key.data, key.fd):
                    if key.data == "life":
                        return
                    selector.unregister(key.fd)
            if time.monotonic() > watch.deadline or kernel.descendants_seconds(os.getpid()) > program.timeout:
                watch.stopped = "timeout"
            elif kernel.descendants_memory(os.getpid()) > program.memory_bytes:
                watch.stopped = "memory"


def sweep(first: int) -> None:
    """Kill the process group, then every descendant: orphans have all become our children. Nothing survives."""
    deadline = time.monotonic() + SWEEP_SECONDS
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(first, signal.SIGKILL)
    while time.monotonic() < deadline:
        for pid in [first, *kernel.children(os.getpid())]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def supervise(program: Program) -> dict[str, Any]:
    """Run one program from start to verdict, and return the report for `sandbox.py`."""
    granted = kernel.leave_host(program.layers, program.workdir)
    kernel.die_with_parent()
    kernel.adopt_orphans()
    others = 0 if kernel.counts_processes_apart(granted) else kernel.tasks_of_user()
    pipes = {name: os.pipe() for name in ("output", "verdict", "life", "seal")}
    first = os.fork()
    if first == 0:
        init(program, granted, others, pipes)
    watch = Watch(nonce=os.urandom(16).hex().encode())
    os.write(pipes["seal"][1], watch.nonce + b"\n")
    readers = {name: pipes[name][0] for name in ("output", "verdict", "life")}
    for name, handle in readers.items():
        os.close(pipes[name][1])
        os.set_blocking(handle, False)
    try:
        observe(watch, program, readers)
    finally:
        sweep(first)
    for name in ("verdict", "output"):
        while drain(watch, program, name, readers[name]):
            pass
    reason = watch.stopped or ("passed" if watch.sealed else f"failed: {watch.failure}")
    return {"reason": reason, "tail": watch.tail.decode(errors="replace"), "ready": watch.ready}


def main() -> None:
    """Entry point of the child process."""
    kernel.die_with_parent()
    program = Program(**json.load(sys.stdin))
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    json.dump(supervise(program), sys.stdout)
