"""Submits worker commands to SLURM as submitit arrays: the one place that knows submitit on the submitting side.

Knows sbatch's options for GPUs, memory and time, and what must not stand in a script; it knows no cluster.

Nothing is waited for: what is done is seen on disk, what is queued by `queue_state`. SLURM keeps the environment that
sbatch sees in its own files, so sbatch sees no variable that holds a secret, except those that `export` names.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unmask.errors import UnmaskError
from unmask.launch.local import RESULT, WorkerCommand
from unmask.spec import build
from unmask.spec.recipe import Recipe
from unmask.spec.resources import ResourcesSpec
from unmask.store.files import make_folder, write_atomically
from unmask.store.redaction import public_environment, redacted

if TYPE_CHECKING:
    from submitit import SlurmExecutor

    from unmask.launch.slurm_task import Group

OURS = ("array", "error", "open-mode", "output", "signal", "wrap")
"""Options of sbatch that Unmask sets itself."""
LARGEST_ARRAY = 1001
"""SLURM's own default, where the cluster does not tell."""
GPU_OPTIONS = {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}
"""Options of sbatch that ask for GPUs."""
GPU_FORMATS = {
    "bfloat16": r"ada|blackwell|pro6000|rtx[345]0[1-9]0|l4|l40s?|[hb][12]00|a(?:2|10g?|16|30|40|100|800|[456][05]00)",
    "float16": r"v100|titanv|titanrtx|t4|rtx20[678]0|rtx[34568]000|gtx16[56]0",
    "float32": r"p100|p40|p4|gtx10[5678]0|titanx|k80|m40",
}
"""Names of GPUs by what they compute fast: Ampere and later, Volta and Turing (no bfloat16), and what came before."""
MOST_RESTARTS = 50
"""Time limits a run may meet before it is taken for one that gets nowhere."""


TAIL_BYTES = 8192
"""Of a job's output, what is searched for its last words."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A worker that is in the queue as a job."""

    command: WorkerCommand
    job_id: str
    """As squeue and scancel know it: `17`, or `17_3` in an array."""


def submit(
    commands: Sequence[WorkerCommand],
    folder: Path,
    resources: Mapping[str, Any],
    announce: Callable[[Sequence[WorkerCommand]], str] = lambda _commands: "unmask",
) -> Iterator[list[Submitted]]:
    """Submit commands in as few arrays as the cluster allows, giving each array's ids as soon as it is in the queue.

    `folder` takes the scripts and the logs of the jobs themselves. `announce` is called with the commands of an array
    before sbatch is, and gives its name. If an array is refused, the ones before it are in the queue and have been
    given.
    """
    wanted = read_resources(resources)
    refuse_secrets(wanted, (command.argv for command in commands))
    if "%" in str(folder):
        raise UnmaskError(
            f"{folder} has a % in its path, which sbatch reads as a pattern; use another store."
        )
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise UnmaskError(
            "There is no sbatch here; use a login node of the cluster, or run without `--on slurm`."
        )
    size = largest_array()
    after: str | None = None
    for start in range(0, len(commands), size):
        chunk = commands[start : start + size]
        name = announce(chunk)
        executor = _executor(folder, wanted, len(chunk), after, Path(sbatch).parent, name)
        groups = _write_groups(chunk, folder / name, wanted)
        submitted = _submit_array(executor, chunk, groups, wanted, start)
        # Arrays have limits of their own: with a limit on all, one follows the other.
        after = submitted[0].job_id.split("_")[0] if wanted.parallel else None
        yield submitted


def largest_array(seconds: float = 30.0) -> int:
    """How many jobs the cluster takes in one array."""
    try:
        command = ["scontrol", "show", "config"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return LARGEST_ARRAY
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer.stdout, re.MULTILINE)
    return max(1, int(found[1])) if found else LARGEST_ARRAY


def _executor(
    folder: Path, resources: ResourcesSpec, count: int, after: str | None, programs: Path, name: str
) -> "SlurmExecutor":
    try:
        from submitit import SlurmExecutor
    except ImportError:
        raise UnmaskError("SLURM needs submitit: pip install 'unmask[slurm]'.") from None
    options = sbatch_options(resources)
    if after is not None:
        options["dependency"] = ",".join(filter(None, [options.get("dependency"), f"afterany:{after}"]))
    cpus = options.get("cpus-per-task")
    executor = SlurmExecutor(folder / "%j", max_num_timeout=MOST_RESTARTS)
    executor.update_parameters(
        job_name=name,
        time=resources.minutes,
        signal_delay_s=warning_seconds(resources),
        array_parallelism=resources.parallel or count,
        stderr_to_stdout=True,
        # At the end of PATH: an environment that is not exported need not know where SLURM is.
        setup=[f'export PATH="${{PATH:-/usr/bin:/bin}}:"{shlex.quote(str(programs))}', *resources.setup],
        # Without these srun starts the worker with less than the script has.
        srun_args=["--export=ALL", *([f"--cpus-per-task={cpus}"] if cpus else [])],
        additional_parameters=options,
    )
    return executor


def _submit_array(
    executor: "SlurmExecutor",
    commands: Sequence[WorkerCommand],
    groups: Mapping[str, "Group"],
    resources: ResourcesSpec,
    before: int,
) -> list[Submitted]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from unmask.launch.slurm_task import Task

    tasks = [
        Task(
            command.argv,
            command.folder.absolute() / RESULT,
            command.log_file.absolute(),
            resources.requeue,
            groups.get(command.group or ""),
        )
        for command in commands
    ]
    kept = _loose_files(executor)
    try:
        # submitit prints what sbatch says, and then raises it as an error.
        with _public_environment(_exported(resources)), redirect_stderr(io.StringIO()):
            queued = executor.submit_array(tasks)
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        for file in _loose_files(executor) - kept:
            file.unlink(missing_ok=True)
        rest = f" Of the runs, {before} were submitted before and are in the queue." if before else ""
        raise UnmaskError(f"sbatch refused: {_sentence(str(error))}{rest}") from None
    return [Submitted(command, job.job_id) for command, job in zip(commands, queued, strict=True)]


def _write_groups(
    commands: Sequence[WorkerCommand], place: Path, resources: ResourcesSpec
) -> dict[str, "Group"]:
    """Write down the runs of each group of an array, from which its jobs take further runs."""
    from unmask.launch.slurm_task import Chore, Group

    chores: dict[str, list[Chore]] = {}
    for each in commands:
        if each.group is not None:
            chore = Chore(str(each.folder.absolute()), each.argv, str(each.log_file.absolute()))
            chores.setdefault(each.group, []).append(chore)
    groups: dict[str, Group] = {}
    for number, (group, runs) in enumerate(chores.items()):
        make_folder(place.parent)
        file = place.with_name(f"{place.name}-{number}.json")
        write_atomically(file, json.dumps(msgspec.to_builtins(runs)))
        seconds = 60.0 * resources.minutes - warning_seconds(resources)
        groups[group] = Group(file=str(file.absolute()), submitted=time.time(), seconds=seconds)
    return groups


def output_of(folder: Path, job_id: str) -> Path:
    """What a job itself has printed: its `setup` lines, submitit, and the end of its worker."""
    return folder / job_id / f"{job_id}_0_log.out"


def last_words(output: Path) -> str:
    """The last line of a job's output that says something of the job, without secrets; empty where there is none."""
    try:
        with output.open("rb") as stream:
            stream.seek(max(0, output.stat().st_size - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    words = [line for line in lines if line.strip() and not line.startswith(("submitit INFO", "srun: "))]
    return redacted(" ".join("".join(filter(str.isprintable, words[-1])).split())) if words else ""


def _loose_files(executor: "SlurmExecutor") -> set[Path]:
    """What submitit lays down before a job has its number, and leaves there if it never gets one."""
    folder = executor.folder.parent
    return {file for pattern in ("*.pkl", ".submission_file_*.sh") for file in folder.glob(pattern)}


@contextmanager
def _public_environment(exported: Sequence[str]) -> Iterator[None]:
    """Submit without secrets, and as from a login node: inside a job its own SLURM variables would be wishes."""
    before, public = dict(os.environ), public_environment(os.environ, exported)
    if "SLURM_JOB_ID" in public:
        public = {
            name: value
            for name, value in public.items()
            if not name.startswith("SLURM_") or name == "SLURM_CONF"
        }
    for variable in before.keys() - public.keys():
        del os.environ[variable]
    try:
        yield
    finally:
        os.environ.update(before)


def _exported(resources: ResourcesSpec) -> list[str]:
    """Variables that the recipe hands over by name: `sbatch = { export = "ALL,HF_TOKEN" }`."""
    given = {_option(name): str(value) for name, value in resources.sbatch.items()}
    return [name.strip() for name in given.get("export", "").split(",")]


def _sentence(message: str) -> str:
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in message.strip().splitlines()]
    return ("; ".join(lines) or "it gave no reason").rstrip(".") + "."


# What a recipe asks of a cluster, in the words of sbatch.


def read_resources(fields: Mapping[str, Any]) -> ResourcesSpec:
    """Validated resources."""
    resources = build(ResourcesSpec, dict(fields), "resources")
    for name in resources.sbatch:
        if _option(name) in OURS:
            raise UnmaskError(f"resources.sbatch may not set `{name}`: Unmask sets it itself.")
    return resources


def sbatch_options(resources: ResourcesSpec) -> dict[str, Any]:
    """Options by their long names; those that are True have no value."""
    options: dict[str, Any] = {
        "requeue" if resources.requeue else "no-requeue": True,
        "cpus-per-task": resources.cpus,
        "gres": _gres(resources),
        "mem": f"{resources.memory_gb}G",
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "exclude": resources.exclude,
        **{_option(name): value for name, value in resources.sbatch.items()},
    }
    return {name: value for name, value in options.items() if value is not None and value is not False}


def asks_for_gpus(resources: ResourcesSpec) -> bool:
    """Whether jobs get GPUs, by whatever option."""
    named = {_option(name) for name, value in resources.sbatch.items() if "gpu" in f"{name}={value}"}
    return bool(resources.gpus or named & GPU_OPTIONS)


def suiting_dtype(gpu_type: str) -> str | None:
    """The number format that a type of GPU computes fast, by the cluster's name for it; None for unknown names."""
    name = re.sub(r"nvidia|geforce|tesla|quadro|[^a-z0-9]", "", gpu_type.lower())
    return next((dtype for dtype, pattern in GPU_FORMATS.items() if re.search(pattern, name)), None)


def note_on_dtype(recipe: Recipe) -> str | None:
    """Refuse to leave the number format to the GPU that a run happens to get; a sentence where it is slow there.

    Without GPUs every worker takes float32, so nothing need be named.
    """
    kind, dtypes = recipe.resources.gpu_type, {recipe.model_of(each).dtype for each in recipe.expanded()}
    suiting = suiting_dtype(kind) if kind else None
    if None in dtypes and asks_for_gpus(recipe.resources):
        advice = (
            'dtype = "bfloat16" (Ampere and later), or "float16" (Volta and Turing, which have no bfloat16)'
        )
        if suiting:
            advice = f'dtype = "{suiting}", which suits {kind}'
        raise UnmaskError(
            f"{recipe.name} names no number format, so every run would take one that suits the GPU it happens to get; "
            f"add to {'[model]' if recipe.model.dtype is None else 'the model of each configuration'}: {advice}."
        )
    if "bfloat16" in dtypes and suiting not in (None, "bfloat16"):
        return f"{kind} has no bfloat16, so that format is slow there; {suiting} suits it."
    return None


def warning_seconds(resources: ResourcesSpec) -> int:
    """How long before its time limit a worker is told to stop."""
    return max(15, min(120, resources.minutes * 60 // 10))


def refuse_secrets(resources: ResourcesSpec, commands: Iterable[Iterable[str]]) -> None:
    """Refuse a token in what would be written into a script or stand in a command."""
    written = [*resources.setup, *map(str, resources.sbatch.values())]
    written += [word for command in commands for word in command]
    if any(redacted(text) != text for text in written):
        raise UnmaskError(
            "The resources hold a secret, such as an access token, which would be written into the job's script; use "
            'a reference instead ("export HF_TOKEN=$(cat FILE)"), or `hf auth login`.'
        )


def _gres(resources: ResourcesSpec) -> str | None:
    if not resources.gpus:
        return None
    kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
    return f"gpu:{kind}{resources.gpus}"


def _option(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
