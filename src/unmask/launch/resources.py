"""What a recipe asks of a cluster, as parameters of an sbatch script.

Knows sbatch's words for GPUs, memory and time. Does not know submitit or any cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unmask.errors import UnmaskError

MINUTES = 240
OURS = ("array", "error", "open-mode", "output", "signal", "wrap")
"""Options of sbatch that Unmask sets itself."""


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and with what a run goes on; never part of a result's identity."""

    gpus: int = 0
    gpu_type: str | None = None
    """As the cluster names it: `rtx_6000` asks for `gpu:rtx_6000:1`."""
    cpus: int = 1
    memory_gb: float | None = None
    minutes: int = MINUTES
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    setup: tuple[str, ...] = ()
    """Lines of shell before the worker starts."""
    exclude: str | None = None
    """Nodes that are not to be used."""
    requeue: bool = True
    """Whether a run that is stopped by its time limit or by preemption goes back into the queue by itself."""
    parallel: int | None = None
    """How many runs may go on at the same time."""
    sbatch: dict[str, str | int | float | bool] = {}
    """Anything else sbatch takes, by the names of its long options."""

    @property
    def gres(self) -> str | None:
        """The GPUs in sbatch's manner."""
        if not self.gpus:
            return None
        return f"gpu:{self.gpu_type}:{self.gpus}" if self.gpu_type else f"gpu:{self.gpus}"

    @property
    def warning_seconds(self) -> int:
        """How long before the time limit a worker is told to stop."""
        return max(15, min(120, self.minutes * 60 // 10))

    def options(self) -> dict[str, Any]:
        """What goes into the script by name, as sbatch spells it."""
        options: dict[str, Any] = {
            "requeue" if self.requeue else "no-requeue": True,
            "cpus-per-task": self.cpus,
            "gres": self.gres,
            "mem": None if self.memory_gb is None else f"{round(self.memory_gb * 1024)}M",
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "exclude": self.exclude,
            **{_option(name): value for name, value in self.sbatch.items()},
        }
        return {name: value for name, value in options.items() if value is not None and value is not False}


def read_resources(fields: Mapping[str, Any]) -> Resources:
    """Validated resources."""
    try:
        resources = msgspec.convert(dict(fields), Resources)
    except msgspec.ValidationError as error:
        known = ", ".join(Resources.__struct_fields__)
        raise UnmaskError(f"The resources are not right: {error}. What can be set: {known}.") from None
    for name, least in (("gpus", 0), ("cpus", 1), ("minutes", 1), ("parallel", 1), ("memory_gb", 0.01)):
        value = getattr(resources, name)
        if value is not None and value < least:
            raise UnmaskError(f"The resources are not right: {name} must be at least {least}, not {value}.")
    _refuse(sorted(set(map(_option, resources.sbatch)) & set(OURS)))
    return resources


def _refuse(names: Sequence[str]) -> None:
    if names:
        raise UnmaskError(f"The resources may not set `{names[0]}` of sbatch: Unmask sets it itself.")


def _option(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
