"""What a recipe says of the machines that its runs need; each word stays one option of a job's script."""

import re
from typing import Annotated, Any

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.build import Count, Part, Positive, shown

CLUSTER_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@%=/+\[\]-]{0,199}")
"""What may name a partition, an account, nodes: a single word, so that it stays one option of sbatch."""
SBATCH_OPTION = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_-]{0,49}")
ONE_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,1000}")


class ResourcesSpec(Part, frozen=True, kw_only=True):
    """Where runs run and what they may use; never part of a result's identity."""

    gpus: Count = 0
    """GPUs of a job."""
    gpu_type: str | None = None
    """The cluster's name of a GPU."""
    cpus: Positive = 2
    """Processors of a job."""
    memory_gb: Positive = 8
    """Memory of a job."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=525_600)] = 60
    """Time limit of a job; at most a year."""
    parallel: Count = 0
    """Jobs of a sweep that may run at once on a cluster; 0 is no limit."""
    partition: str | None = None
    """As sbatch takes it."""
    account: str | None = None
    """As sbatch takes it."""
    qos: str | None = None
    """As sbatch takes it."""
    exclude: str | None = None
    """Nodes to avoid, as sbatch takes them."""
    requeue: bool = True
    """Whether SLURM may put a job back into the queue after a time limit or a preemption."""
    setup: tuple[str, ...] = ()
    """Shell lines in front of the worker."""
    sbatch: dict[str, Any] = msgspec.field(default_factory=dict)
    """Anything else that sbatch takes."""

    def __post_init__(self) -> None:
        """Refuse what would not stay one option of a job's script."""
        for name in ("gpu_type", "partition", "account", "qos", "exclude"):
            value = getattr(self, name)
            if value is not None and not CLUSTER_WORD.fullmatch(value):
                raise UnmaskError(f"resources.{name} is {shown(value)}; it must be one word.")
        for line in self.setup:
            if not ONE_LINE.fullmatch(line):
                raise UnmaskError(f"resources.setup has {shown(line)}; each of its entries is one line.")
        for option, value in self.sbatch.items():
            if not SBATCH_OPTION.fullmatch(option):
                raise UnmaskError(f"resources.sbatch has {shown(option)}, which is no option of sbatch.")
            if not isinstance(value, str | int | float) or not ONE_LINE.fullmatch(str(value)):
                raise UnmaskError(
                    f"resources.sbatch: `{option}` is {shown(value)}; it must be one line of text, a number, true or "
                    "false."
                )
