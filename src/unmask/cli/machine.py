"""What this machine allows: facts are read in one place and judged in another, so that judging is tested.

A judgement is a name, whether it is well, and one sentence that says what to do where it is not.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "tokenizers", "safetensors", "huggingface_hub", "lm_eval", "datasets")
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver, by its first number, that runs builds of a CUDA generation (NVIDIA's table for Linux)."""
INDEX = "https://download.pytorch.org/whl"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `unmask doctor`."""

    name: str
    well: bool | None
    """None: a fact that is neither good nor bad."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What is known of a machine's GPU and of the torch that is to use it."""

    name: str | None = None
    driver: str | None = None
    capability: tuple[int, int] | None = None
    cuda_build: str | None = None
    """The CUDA version that torch was built with; None for a CPU build."""
    architectures: Sequence[str] = field(default_factory=tuple)
    """What torch has machine code for: sm_75, compute_90 and so on."""


def judge_gpu(gpu: Gpu) -> Finding:
    """Whether driver, CUDA build and compute capability fit each other, and what to install if not."""
    if gpu.name is None:
        return Finding("GPU", None, "none is seen; decoding runs on the CPU")
    if gpu.cuda_build is None:
        advice = f"pip install torch --index-url {INDEX}/{_build_for(gpu)}"
        return Finding("GPU", False, f"{gpu.name} is there but torch is a CPU build; {advice}")
    generation = int(gpu.cuda_build.split(".")[0])
    driver = int(gpu.driver.split(".")[0]) if gpu.driver else None
    oldest = OLDEST_DRIVER.get(generation)
    if driver is not None and oldest is not None and driver < oldest:
        return Finding(
            "GPU",
            False,
            f"the driver {gpu.driver} is below {oldest}, which the CUDA {generation} build of torch needs; update "
            f"it, or pip install torch --index-url {INDEX}/{_build_for(gpu)}",
        )
    if gpu.capability and gpu.architectures and not _has_code(gpu.capability, gpu.architectures):
        wanted = "".join(map(str, gpu.capability))
        return Finding(
            "GPU",
            False,
            f"{gpu.name} has compute capability {gpu.capability[0]}.{gpu.capability[1]} (sm_{wanted}), for which this "
            f"torch (CUDA {gpu.cuda_build}) has no code; pip install torch --index-url {INDEX}/{_build_for(gpu)}",
        )
    return Finding("GPU", True, f"{gpu.name}, driver {gpu.driver}, torch for CUDA {gpu.cuda_build}: they fit")


def _build_for(gpu: Gpu) -> str:
    """A build that the driver runs and that has code for the device."""
    driver = int(gpu.driver.split(".")[0]) if gpu.driver else 0
    old_device = gpu.capability is not None and gpu.capability < (7, 5)
    if driver >= OLDEST_DRIVER[13] and not old_device:
        return "cu130"
    return "cu126" if driver >= OLDEST_DRIVER[12] or not driver else "cu118"


def _has_code(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Machine code runs on the same generation from its minor version up; PTX on anything newer."""
    for name in architectures:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", name)
        if not found:
            continue
        other = (int(found[2]), int(found[3]))
        same = other[0] == capability[0] and other[1] <= capability[1]
        if same or (found[1] == "compute" and other <= capability):
            return True
    return False


def read_gpu() -> Gpu:
    """Ask nvidia-smi and torch."""
    name = driver = capability = None
    query = "--query-gpu=name,driver_version,compute_cap"
    if shutil.which("nvidia-smi"):
        answer = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
        parts = [part.strip() for part in answer.stdout.partition("\n")[0].split(",")]
        if answer.returncode == 0 and len(parts) == 3:
            name, driver = parts[:2]
            major, _, minor = parts[2].partition(".")
            capability = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    import torch

    built = torch.version.cuda
    codes = torch.cuda.get_arch_list() if built else []
    return Gpu(name=name, driver=driver, capability=capability, cuda_build=built, architectures=codes)


def package_findings() -> list[Finding]:
    """Versions of what results depend on."""
    found = []
    for name in PACKAGES:
        try:
            found.append(Finding(name, True, version(name)))
        except PackageNotFoundError:
            needed = name in ("lm_eval", "datasets")
            advice = 'benchmarks need it: pip install "unmask[eval]"' if needed else "it is missing"
            found.append(Finding(name, False, advice))
    return found
