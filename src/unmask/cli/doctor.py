"""`unmask doctor`: versions, data, token, disk, sandbox and GPU at a glance, with what to do where something is amiss.

Facts are read in one function and judged in another, so that judging is tested without a GPU. Which driver runs
which CUDA version, and which build of torch suits them, is not known here: the vendors' pages say it.
"""

import json
import os
import platform
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from unmask.errors import UnmaskError
from unmask.store.environment import query_gpus

GIB = 1 << 30
LITTLE_BYTES = 20 * GIB
MARKS = {True: "ok", False: "!!", None: "--"}
PACKAGES = ("torch", "tokenizers", "safetensors", "huggingface_hub", "lm_eval", "datasets")
BENCHMARK_PACKAGES = ("lm_eval", "datasets")
BUILDS = "https://pytorch.org/get-started/locally"
DRIVERS = "https://docs.nvidia.com/deploy/cuda-compatibility"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `unmask doctor`."""

    name: str
    well: bool | None
    """None: a fact that is neither good nor bad."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What is known of a machine's GPU and of the torch that is to use it."""

    name: str | None = None
    driver: str | None = None
    capability: tuple[int, int] | None = None
    cuda_build: str | None = None
    """The CUDA version that torch was built with; None for a CPU build."""
    architectures: Sequence[str] = field(default_factory=tuple)
    """What torch has machine code for: sm_75, compute_90 and so on."""
    starts: bool = False
    """Whether torch could start CUDA."""


@click.command()
@click.option("--tasks", "-t", metavar="NAME,NAME", help="Check the local data of these tasks.")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [UNMASK_DATA]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def doctor(ctx: click.Context, tasks: str | None, data: Path | None, as_json: bool) -> None:
    """Show whether this machine is ready; the exit code is 1 if something is amiss.

    A token is only looked for: its value is neither read nor shown.

    \b
    Examples:
      unmask doctor
      unmask doctor --tasks gsm8k,gpqa_diamond_zeroshot --data path/to/data
    """
    folder = data or (Path(os.environ["UNMASK_DATA"]) if os.environ.get("UNMASK_DATA") else None)
    checks = [
        Check("python", True, platform.python_version()),
        *map(_package, PACKAGES),
        judge_gpu(read_gpu()),
        _disk(),
        _token(),
        _bubblewrap(),
        *_data(tasks, folder),
    ]
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            click.echo(f"{MARKS[check.well]}  {check.name:16} {check.says}")
    ctx.exit(1 if any(check.well is False for check in checks) else 0)


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        advice = (
            'benchmarks need it: pip install "unmask[eval]"'
            if name in BENCHMARK_PACKAGES
            else "it is missing"
        )
        return Check(name, False, advice)


def read_gpu() -> GpuFacts:
    """Ask nvidia-smi and torch."""
    first: dict[str, str] = next(iter(query_gpus("name", "driver_version", "compute_cap")), {})
    major, _, minor = first.get("compute_cap", "").partition(".")
    capability = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    import torch

    built = torch.version.cuda
    with warnings.catch_warnings(action="ignore"):  # torch warns of a driver that is too old: said below
        starts = torch.cuda.is_available()
    return GpuFacts(
        name=first.get("name"),
        driver=first.get("driver_version"),
        capability=capability,
        cuda_build=built,
        architectures=torch.cuda.get_arch_list() if built else (),
        starts=starts,
    )


def judge_gpu(gpu: GpuFacts) -> Check:
    """Whether torch can use the GPU, and what to do if not."""
    facts = f"{gpu.name}, driver {gpu.driver}, torch for CUDA {gpu.cuda_build}"
    if gpu.name is None:
        return Check("GPU", None, "none is seen; decoding runs on the CPU")
    if gpu.cuda_build is None:
        return Check("GPU", False, f"{gpu.name} is there but torch is a CPU build; install another: {BUILDS}")
    if gpu.capability and gpu.architectures and not _has_code(gpu.capability, gpu.architectures):
        wanted = "".join(map(str, gpu.capability))
        return Check("GPU", False, f"{facts}, which has no code for sm_{wanted}; install another: {BUILDS}")
    if not gpu.starts:
        return Check(
            "GPU", False, f"{facts}, which cannot start; see which driver that version needs: {DRIVERS}"
        )
    return Check("GPU", True, f"{facts}: they fit")


def _has_code(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Machine code runs on the same generation from its minor version up; PTX on anything newer."""
    for name in architectures:
        parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", name)
        if not parts:
            continue
        other = (int(parts[2]), int(parts[3]))
        same = other[0] == capability[0] and other[1] <= capability[1]
        if same or (parts[1] == "compute" and other <= capability):
            return True
    return False


def _disk() -> Check:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache"))
    place = next(parent for parent in (home, *home.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    advice = "" if free >= LITTLE_BYTES else "; a 7B checkpoint needs 15 GiB, so set HF_HOME to a larger disk"
    return Check("disk", free >= LITTLE_BYTES, f"{free / GIB:.1f} GiB free for downloads{advice}")


def _token() -> Check:
    from unmask.evaluation.task_data import has_token

    says = "present" if has_token() else "none: only GPQA and private checkpoints need one"
    return Check("hub token", None, says)


def _bubblewrap() -> Check:
    from unmask.evaluation.sandbox import bubblewrap_problem

    problem = bubblewrap_problem()
    advice = f"HumanEval and MBPP are refused: {problem}; install the package bubblewrap, or see --allow-unsafe-code"
    return Check(
        "bubblewrap", None if problem else True, advice if problem else "model-written programs run in it"
    )


def _data(tasks: str | None, folder: Path | None) -> list[Check]:
    if not tasks:
        says = f"{folder} for all that lies there, the hub for the rest" if folder else "taken from the hub"
        return [Check("data", None, says)]
    from unmask.evaluation.task_files import check_names

    return [_task(name, folder) for name in check_names(tasks.split(","))]


def _task(name: str, folder: Path | None) -> Check:
    from unmask.evaluation.catalogue import members_of
    from unmask.evaluation.task_files import local_files

    try:
        for source in members_of(name):
            if folder and source.stock:
                local_files(source, folder)
    except UnmaskError as error:
        return Check(name, False, str(error))
    return Check(name, True, "data found" if folder else "data taken from the hub")
