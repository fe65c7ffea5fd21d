"""Starting runs: on this machine's slots or through SLURM, and asking a queue what became of them.

Knows run folders by their paths and workers by their command; resuming is the worker's matter. Imports no torch, and
submitit only when something is submitted.
"""

from unmask.launch.local import Ended, Event, Skipped, Started, Tick, WorkerCommand, local_pool
from unmask.launch.queue_state import JobState, cancel, job_states
from unmask.launch.slots import WorkerSlot, find_slots
from unmask.launch.slurm import Submitted, submit

__all__ = [
    "Ended",
    "Event",
    "JobState",
    "Skipped",
    "Started",
    "Submitted",
    "Tick",
    "WorkerCommand",
    "WorkerSlot",
    "cancel",
    "find_slots",
    "job_states",
    "local_pool",
    "submit",
]
