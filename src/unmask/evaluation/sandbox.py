"""Model-written programs, run where they can do no harm: HumanEval and MBPP need it.

    >>> run_program("assert 1 + 1 == 2").reason
    'passed'

Knows how to start the child (`sandbox_child.py`), what its report means, pass@k, and how lm-eval comes by its
metric. Does not know how a process is confined (`sandbox_kernel.py`).
Each program gets a fresh interpreter, an empty folder, a cleaned environment, hard limits and every layer of
isolation the system grants; `isolation()` says which. Nothing is left behind: no process, no file.
Without a pid namespace a program that kills by uid can reach its supervisor, and without a mount namespace,
Landlock or another uid it can delete the user's files; `Isolation.gaps` says so, and a caller should show it.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

LAYERS = (
    "nobody",
    "user_namespace",
    "network_namespace",
    "pid_namespace",
    "ipc_namespace",
    "mount_namespace",
    "landlock",
)
LONGEST_SOURCE = 1_000_000
TIME_LIMIT = 15.0
"""Processor seconds of a program under test; MBPP's slowest own solution, task 123, took six where this was set."""
PATIENCE = 3.0
"""Seconds on the wall that a program may take, for each second of its time limit: waiting is no work."""
BACKSTOP_SECONDS = 30.0
_PACKAGE_ROOT = str(Path(__file__).parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from unmask.evaluation.sandbox_child import main; "
    "del sys.path[0]; main()"
)
GAP = "The sandbox for model-written programs is incomplete on this system: {}."
"""The warning for each of `Isolation.gaps`."""
Details = dict[int, list[tuple[int, dict[str, Any]]]]


@dataclass(frozen=True)
class Isolation:
    """What protected a program, as found out by doing it."""

    layers: frozenset[str] = frozenset()
    """Granted layers, names as in LAYERS (Landlock apart)."""
    landlock: int = 0
    """Version of Landlock, 0 where there is none."""
    counts_processes: bool = False
    """Whether the process limit binds; on root it never does."""

    @property
    def protects_files(self) -> bool:
        """Whether the user's files are out of reach for writing, truncating and deleting."""
        return bool(self.layers & {"nobody", "mount_namespace"}) or self.landlock >= 3

    @property
    def closes_network(self) -> bool:
        """Whether no connection can be made; Landlock alone closes TCP only and does not count."""
        return "network_namespace" in self.layers

    @property
    def gaps(self) -> list[str]:
        """What the system did not allow, one clause each; empty when nothing is missing."""
        missing = {
            "the user's files can be changed": not self.protects_files,
            "the network can be reached": not self.closes_network,
            "other processes of the user can be signalled": not (
                self.layers & {"nobody", "pid_namespace"} or self.landlock >= 6
            ),
            "the number of processes is not limited": not self.counts_processes,
        }
        return [gap for gap, is_open in missing.items() if is_open]


@dataclass(frozen=True)
class ProgramOutcome:
    """How one program ended."""

    passed: bool
    """Only when its last line was reached: leaving early, with whatever exit code, is a failure."""
    reason: str
    """`passed`, `failed: <exception, signal or how>`, `timeout`, `memory` or `refused: <why>`."""
    stdout_tail: str = ""
    """The last 4096 bytes of what it printed, stderr included."""
    isolation: Isolation = field(default=Isolation(), repr=False)
    """What protected this run."""


def run_program(
    source: str,
    timeout: float = 3.0,
    memory_bytes: int = 1 << 30,
    *,
    layers: Collection[str] = LAYERS,
) -> ProgramOutcome:
    """Execute `source` as a module of its own, with all `layers` that the system grants.

    `timeout` is in seconds of processor time of all its processes, so that a busy machine fails no program. A
    program that sleeps instead is ended after PATIENCE times as long. Where the system does not tell processor
    time, `timeout` is seconds on the wall.
    """
    if not (0 < timeout < math.inf and memory_bytes >= 1 << 26):
        raise UnmaskError(
            f"A program needs a positive time limit and 64 MiB, not {timeout} s, {memory_bytes} bytes."
        )
    if len(source) > LONGEST_SOURCE:
        return ProgramOutcome(False, f"refused: longer than {LONGEST_SOURCE} characters")
    with tempfile.TemporaryDirectory(prefix="unmask-", ignore_cleanup_errors=True) as workdir:
        program = {
            "source": source,
            "workdir": workdir,
            "timeout": timeout,
            "patience": timeout * PATIENCE,
            "memory_bytes": memory_bytes,
            "layers": sorted(layers),
        }
        try:
            answer = _start_child(json.dumps(program), workdir, timeout * PATIENCE + BACKSTOP_SECONDS)
        except subprocess.TimeoutExpired:
            return ProgramOutcome(False, "timeout")
        finally:
            _reopen(workdir)
    return _read_report(answer)


def _start_child(program: str, workdir: str, patience: float) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _START, _PACKAGE_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=workdir,
        env=_environment(workdir),
        start_new_session=True,
    ) as child:
        try:
            stdout, stderr = child.communicate(program, timeout=patience)
        except BaseException:  # an interrupt too: the kernel then ends what the child has started
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess([], child.returncode, stdout, stderr)


def _environment(workdir: str) -> dict[str, str]:
    """Nothing of our environment but the folders of shared libraries: tokens and keys stay outside."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {"PATH": os.defpath, "HOME": workdir, "TMPDIR": workdir, "LANG": "C.UTF-8"} | threads | kept


def _reopen(workdir: str) -> None:
    """A program may have locked its own folders; unlock them, so that they can be removed."""
    Path(workdir).chmod(0o700)
    for folder, names, _ in os.walk(workdir):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)


def _read_report(answer: subprocess.CompletedProcess[str]) -> ProgramOutcome:
    if answer.returncode < 0:  # only where no pid namespace keeps the program from its supervisor
        return ProgramOutcome(False, "failed: killed its supervisor")
    try:
        report = json.loads(answer.stdout)
    except ValueError:
        report = {"ready": None, "reason": (answer.stderr.strip().splitlines() or ["no report"])[-1]}
    if report["ready"] is None:
        raise UnmaskError(f"The sandbox for model-written programs could not start: {report['reason']}.")
    ready = report["ready"]
    isolation = Isolation(frozenset(ready["layers"]), ready["landlock"], ready["counts_processes"])
    return ProgramOutcome(report["reason"] == "passed", report["reason"], report["tail"], isolation)


@cache
def isolation() -> Isolation:
    """What this system grants, found out once by running an empty program."""
    return run_program("", timeout=10.0).isolation


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Probability that k of the samples, drawn without replacement, hold a correct one (arXiv 2107.03374)."""
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def code_eval(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1, 10, 100),
    workers: int = 4,
    timeout: float = TIME_LIMIT,
) -> tuple[dict[str, float], Details]:
    """The result of `evaluate.load("code_eval").compute`: pass@k for every k all problems have samples for.

    The details map each problem's number to (candidate's number, what happened), in order.
    """
    if not references or len(references) != len(predictions) or not all(predictions):
        raise UnmaskError("Code is scored with one test and at least one candidate for every problem.")
    if not k or min(k) < 1 or workers < 1:
        raise UnmaskError(f"pass@k needs k and workers of at least 1, not k={list(k)}, workers={workers}.")
    programs = [
        (task, number, candidate + "\n" + references[task])
        for task, candidates in enumerate(predictions)
        for number, candidate in enumerate(candidates)
    ]
    details: Details = {task: [] for task in range(len(references))}
    with ThreadPoolExecutor(workers) as pool:
        outcomes = pool.map(lambda program: run_program(program[2], timeout), programs)
        for (task, number, _), outcome in zip(programs, outcomes, strict=True):
            result = {"task_id": task, "passed": outcome.passed, "result": outcome.reason}
            details[task].append((number, result | {"completion_id": number}))
    totals = [(len(rows), sum(row["passed"] for _, row in rows)) for rows in details.values()]
    scores = {
        f"pass@{size}": sum(pass_at_k(n, c, size) for n, c in totals) / len(totals)
        for size in k
        if all(n >= size for n, _ in totals)
    }
    return scores, details


class SandboxedCodeEval:
    """Has the one method of the hub's metric that lm-eval calls."""

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,)
    ) -> tuple[dict[str, float], Any]:
        """pass@k and what happened to each program."""
        return code_eval(references, predictions, k)


@contextmanager
def sandboxed_metric(tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Let task files that are imported meanwhile get the sandbox as `code_eval`.

    lm-eval's files for HumanEval and MBPP ask the hub for the metric `code_eval` while they are imported, and
    run a program with it at once. There is no setting for another metric, so for the time of that import, and
    only then, `evaluate.load` hands out the sandbox. Once a file has asked for it, `tell` is called with each
    thing that this system does not keep programs from.
    """
    import evaluate

    original = evaluate.load

    def load(path: str, *arguments: Any, **options: Any) -> Any:
        if path != "code_eval":
            return original(path, *arguments, **options)
        if tell:
            for gap in isolation().gaps:
                tell(gap)
        return SandboxedCodeEval()

    evaluate.load = load
    try:
        yield
    finally:
        evaluate.load = original
