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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines()]
    return [dict(zip(fields, parts, strict=True)) for parts in lines if len(parts) == len(fields)]


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


def cores() -> int:
    """Cores this process may use, which on a cluster are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gb() -> float:
    import psutil

    return round(psutil.virtual_memory().total / GIGABYTE, 1)
