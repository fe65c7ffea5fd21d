"""Where a result came from: code, packages and machine, as the worker itself sees them.

Knows files and client programs, not torch: what only torch can tell is handed in. The environment's variables
are not recorded, and arguments are, without anything that looks like a token.
"""

import os
import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from unmask.store.git_state import git_state
from unmask.store.process import slurm_ids
from unmask.store.redaction import redacted_arguments
from unmask.store.result import Environment, Gpu

PACKAGES = (
    *("unmask", "torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "msgspec"),
    *("lm_eval", "datasets", "transformers", "math_verify", "sympy", "langdetect"),
)
"""Those whose version can change a number."""
CODE = Path(__file__).parents[1]
"""The package's own folder."""
GIGABYTE = 1 << 30
SECONDS = 10.0


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
        **git_state(CODE),
        packages=_packages(),
        python=platform.python_version(),
        system=platform.platform(),
        cpu=_cpu(),
        cores=_cores(),
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


def gpus() -> list[Gpu]:
    """The GPUs this process may use, the first one first; none where nvidia-smi is missing or silent."""
    query = "index,name,uuid,driver_version,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[field.strip() for field in line.split(",")] for line in told.stdout.splitlines()]
    found = {(row[0], row[2]): _gpu(row) for row in rows if told.returncode == 0 and len(row) == 5}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(found.values())
    wanted = [part.strip() for part in visible.split(",") if part.strip()]
    chosen = [
        gpu
        for part in wanted
        for (index, uuid), gpu in found.items()
        if part == index or uuid.startswith(part)
    ]
    # A name nvidia-smi does not list (a slice of a GPU) tells nothing of the others.
    return chosen if chosen or not wanted else list(found.values())


def _gpu(row: list[str]) -> Gpu:
    _, name, uuid, driver, megabytes = row
    memory = round(float(megabytes) / 1024, 2) if megabytes.replace(".", "", 1).isdigit() else None
    return Gpu(name=name, uuid=uuid, driver=driver, memory_gb=memory)


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _cores() -> int | None:
    """Cores this process may use, which on a cluster are fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def _memory_gb() -> float:
    import psutil

    return round(psutil.virtual_memory().total / GIGABYTE, 1)
