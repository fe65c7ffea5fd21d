"""What a recipe asks of a cluster, in the words of sbatch; and what must not stand in a script.

Knows sbatch's options for GPUs, memory and time. Does not know submitit or any cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from unmask.errors import UnmaskError
from unmask.spec import build
from unmask.spec.recipe import ResourcesSpec
from unmask.store.redaction import redacted

OURS = ("array", "error", "open-mode", "output", "signal", "wrap")
"""Options of sbatch that Unmask sets itself."""


def read_resources(fields: Mapping[str, Any]) -> ResourcesSpec:
    """Validated resources."""
    resources = build(ResourcesSpec, dict(fields), "resources", strict=True)
    for name, value in resources.sbatch.items():
        if _option(name) in OURS:
            raise UnmaskError(f"resources.sbatch may not set `{name}`: Unmask sets it itself.")
        if not isinstance(value, str | int | float):
            raise UnmaskError(f"resources.sbatch: `{name}` must be text, a number, true or false.")
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


def warning_seconds(resources: ResourcesSpec) -> int:
    """How long before its time limit a worker is told to stop."""
    return max(15, min(120, resources.minutes * 60 // 10))


def refuse_secrets(resources: ResourcesSpec, commands: Iterable[Iterable[str]]) -> None:
    """Refuse a token in what would be written into a script or stand in a command."""
    written = [*resources.setup, *map(str, resources.sbatch.values())]
    written += [word for command in commands for word in command]
    if any(redacted(text) != text for text in written):
        raise UnmaskError(
            "The resources hold an access token, which would be written into the job's script; give it as HF_TOKEN in "
            "the environment or by `hf auth login`."
        )


def _gres(resources: ResourcesSpec) -> str | None:
    if not resources.gpus:
        return None
    kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
    return f"gpu:{kind}{resources.gpus}"


def _option(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
