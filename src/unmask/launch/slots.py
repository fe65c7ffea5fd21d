"""Where runs can go on at the same time on this machine: its GPUs, or a number of CPU slots.

Knows the environment and nvidia-smi; imports no torch and touches no GPU.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unmask.errors import UnmaskError
from unmask.store.environment import cores

DEVICES = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"
SECONDS = 20.0
MOST_SLOTS = 1024
"""Workers of one sweep on one machine."""
_GPU = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_PART = re.compile(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A place for one run at a time."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a run in this slot finds in its environment besides the rest."""


def find_slots(count: int | None = None, environment: Mapping[str, str] | None = None) -> list[WorkerSlot]:
    """The slots of this machine; `count` sets their number, several to a GPU if there are not as many."""
    if count is not None and not 1 <= count <= MOST_SLOTS:
        raise UnmaskError(f"The number of slots must be between 1 and {MOST_SLOTS}, not {count}.")
    environment = os.environ if environment is None else environment
    devices = visible_devices(environment)
    if devices is None:
        devices = installed_devices()
    if devices:
        return [_gpu_slot(devices, index) for index in range(count or len(devices))]
    return _cpu_slots(count or 1, environment)


def visible_devices(environment: Mapping[str, str]) -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES allows, UUIDs as they are; None where it is not set."""
    text = environment.get(DEVICES)
    if text is None:
        return None
    devices: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name in ("", "-1", "NoDevFiles"):  # CUDA ignores what follows a name that is none
            break
        devices.append(name)
    return devices


def installed_devices(command: Sequence[str] = ("nvidia-smi", "-L"), seconds: float = SECONDS) -> list[str]:
    """UUIDs of all GPUs, or of the parts of those that are divided; empty where there is no working driver."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return read_devices(answer.stdout) if answer.returncode == 0 else []


def read_devices(listing: str) -> list[str]:
    """The UUIDs in what `nvidia-smi -L` prints: a GPU's parts instead of a divided GPU."""
    gpus: list[tuple[str, list[str]]] = []
    for line in listing.splitlines():
        if gpu := _GPU.match(line):
            gpus.append((gpu[1], []))
        elif (part := _PART.match(line)) and gpus:
            gpus[-1][1].append(part[1])
    return [uuid for gpu, parts in gpus for uuid in (parts or [gpu])]


def _gpu_slot(devices: Sequence[str], index: int) -> WorkerSlot:
    device = devices[index % len(devices)]
    again = index // len(devices)
    number = device if device.isdigit() else str(index % len(devices))
    return WorkerSlot(f"gpu {number}" + (f" ({again + 1})" if again else ""), {DEVICES: device})


def _cpu_slots(count: int, environment: Mapping[str, str]) -> list[WorkerSlot]:
    own = {} if environment.get(THREADS) else {THREADS: str(max(1, cores() // count))}
    return [WorkerSlot(f"cpu {index}", own) for index in range(count)]
