"""Where a result came from: code, packages and machine, as the worker itself sees them.

Only the code's own folder counts for its commit: notes, recipes and results that lie in the same checkout and change
during a sweep do not make its runs differ. Code that was installed without its checkout has no commit, and where git
does not answer it is unknown; the code itself is known by its hash in any case.

Knows files and client programs, not torch: what only torch can tell is handed in. The environment's variables
are not recorded, and arguments are, without anything that looks like a token.
"""

import hashlib
import os
import platform
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unmask.store.computation import Computation
from unmask.store.process import slurm_ids
from unmask.store.redaction import redacted_arguments
from unmask.store.result import Environment, Gpu
from unmask.version import __version__

PACKAGES = (
    *("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "msgspec"),
    *("lm_eval", "datasets", "transformers", "math_verify", "sympy", "langdetect"),
)
"""Those whose version can change a number."""
CODE = Path(__file__).parents[1]
"""The package's own folder."""
GIGABYTE = 1 << 30
SMI_SECONDS = 10.0
GIT_SECONDS = 30.0
NO_COMMIT = {"commit": None, "dirty": None, "diff_sha256": None}
UNKNOWN = "unknown"
"""What stands for a commit, or for the difference from it, where there is a checkout and git does not tell."""


def environment(
    *,
    device: str,
    dtype: str | None,
    threads: int | None,
    batch_size: int | None,
    seed: int | None,
    cuda: str | None,
    layouts: dict[str, str] | None = None,
) -> Environment:
    """Everything about this process that a reader of its result may want to know."""
    return Environment(
        **loaded_code(),
        packages=_packages(),
        python=platform.python_version(),
        system=platform.platform(),
        cpu=_cpu(),
        cores=cores(),
        memory_gb=_memory_gb(),
        gpus=gpus(),
        cuda=cuda,
        host=socket.gethostname(),
        argv=redacted_arguments(sys.argv),
        slurm=slurm_ids(),
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        batch_size=batch_size,
        layouts=layouts or {},
    )


def computation(*, device: str, dtype: str) -> Computation:
    """The kind of computation that this process does, of which only torch knows device and number format."""
    versions, code = _packages(), loaded_code()
    return Computation(
        unmask=versions.get("unmask"),
        commit=code["commit"],
        diff_sha256=code["diff_sha256"],
        code_sha256=code["code_sha256"],
        torch=versions.get("torch"),
        device=device,
        dtype=dtype,
    )


@cache
def loaded_code() -> dict[str, Any]:
    """The state of the package's own folder when this process first asked, before a worker loads more of it."""
    return {**git_state(CODE), "code_sha256": code_sha256(CODE)}


def code_sha256(code: Path) -> str:
    """The hash of all modules in a folder with their names."""
    total = hashlib.sha256()
    for file in sorted(code.rglob("*.py")):
        with suppress(OSError):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(code).as_posix()} {digest}\n".encode())
    return total.hexdigest()


def gpus() -> list[Gpu]:
    """The GPUs this process may use, the first one first; none where nvidia-smi is missing or silent."""
    readings = query_gpus("index", "name", "uuid", "driver_version", "memory.total")
    installed = {(reading["index"], reading["uuid"]): _gpu(reading) for reading in readings}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(installed.values())
    wanted = [part.strip() for part in visible.split(",") if part.strip()]
    chosen = [
        gpu
        for part in wanted
        for (index, uuid), gpu in installed.items()
        if part == index or uuid.startswith(part)
    ]
    # A name nvidia-smi does not list (a slice of a GPU) tells nothing of the others.
    return chosen if chosen or not wanted else list(installed.values())


def _gpu(reading: dict[str, str]) -> Gpu:
    megabytes = reading["memory.total"]
    memory = round(float(megabytes) / 1024, 2) if megabytes.replace(".", "", 1).isdigit() else None
    return Gpu(name=reading["name"], uuid=reading["uuid"], driver=reading["driver_version"], memory_gb=memory)


def query_gpus(*fields: str) -> list[dict[str, str]]:
    """What nvidia-smi says of every GPU, by its own names of fields; nothing where it is missing or fails."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines()]
    return [dict(zip(fields, parts, strict=True)) for parts in lines if len(parts) == len(fields)]


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions | {"unmask": __version__}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cores() -> int:
    """Cores this process may use, which on a cluster are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gb() -> float:
    import psutil

    return round(psutil.virtual_memory().total / GIGABYTE, 1)


def git_state(code: Path) -> dict[str, Any]:
    """Commit, whether the code differs from it, and the hash of the difference (None where there is none)."""
    commit = _git(code, "rev-parse", "HEAD")
    if commit is None:
        in_checkout = any((folder / ".git").exists() for folder in code.parents)
        return {**NO_COMMIT, "commit": UNKNOWN} if in_checkout else dict(NO_COMMIT)
    if _git(code, "ls-files", "--error-unmatch", "__init__.py") is None:
        return dict(NO_COMMIT)
    difference = _git(code, "diff", "HEAD", "--no-ext-diff", "--no-color", "--binary", "--", ".")
    added = _git(code, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    if difference is None or added is None:
        return {"commit": commit.decode().strip(), "dirty": None, "diff_sha256": UNKNOWN}
    names = [name for name in added.decode(errors="surrogateescape").split("\0") if name]
    dirty = bool(difference or names)
    return {
        "commit": commit.decode().strip(),
        "dirty": dirty,
        "diff_sha256": _digest(code, difference, names) if dirty else None,
    }


def _digest(code: Path, difference: bytes, names: list[str]) -> str:
    """The hash of `git diff HEAD`, followed by the files that git does not know yet."""
    total = hashlib.sha256(difference)
    for name in sorted(names):
        total.update(name.encode(errors="surrogateescape") + b"\0")
        try:
            total.update((code / name).read_bytes())
        except OSError:
            continue
    return total.hexdigest()


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git says, or None where it is missing, silent or refuses."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
