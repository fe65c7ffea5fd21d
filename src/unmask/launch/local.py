"""Runs jobs on this machine's slots: a fresh process per run, one loop in the main thread, no other thread.

What is done is read from disk when a job's turn comes, so several pools may work on the same jobs. Interrupts stop all
workers, leave what they have written, and end in KeyboardInterrupt. Knows nothing of what a worker does.

    with local_pool(jobs, find_slots()) as events:
        for event in events:
            ...
"""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from unmask.launch.events import Ended, Event, Skipped, Started, Tick
from unmask.launch.interrupts import caught_interrupts
from unmask.launch.jobs import Job
from unmask.launch.processes import has_ended, reap_group, signal_group, start_worker, wait_for
from unmask.launch.slots import Slot

LOOK_AGAIN = 2.0
"""Seconds between two looks at a job that another runner holds."""


@contextmanager
def local_pool(
    jobs: Sequence[Job],
    slots: Sequence[Slot],
    *,
    held: Callable[[Job], bool] = lambda _job: False,
    pause: float = 0.2,
    grace: float = 10.0,
) -> Iterator[Iterator[Event]]:
    """Events of running all jobs; leaving it early stops the workers.

    A job that is `held` (another runner works on it) waits until it is done or let go. Workers that are stopped have
    `grace` seconds; a second interrupt takes them away.
    """
    with caught_interrupts() as caught:
        pool = _Pool(jobs, slots, held, pause, grace, caught)
        try:
            yield pool.events()
        finally:
            pool.stop()
    if caught:
        raise KeyboardInterrupt


@dataclass(slots=True)
class _Running:
    job: Job
    slot: Slot
    process: subprocess.Popen[bytes]
    since: float


class _Pool:
    def __init__(
        self,
        jobs: Sequence[Job],
        slots: Sequence[Slot],
        held: Callable[[Job], bool],
        pause: float,
        grace: float,
        caught: Sequence[int],
    ) -> None:
        self._waiting = deque(jobs)
        self._free = deque(slots)
        self._running: list[_Running] = []
        self._look_again: dict[str, float] = {}
        self._held, self._pause, self._grace, self._caught = held, pause, grace, caught

    def events(self) -> Iterator[Event]:
        while self._waiting or self._running:
            if self._caught:
                self.stop()
                raise KeyboardInterrupt
            yield from self._collect()
            yield from self._fill()
            yield Tick(tuple(each.job for each in self._running), len(self._waiting))
            if self._running or self._waiting:
                time.sleep(self._pause)

    def stop(self) -> None:
        """Ask all workers to end, then take away what is left of them and of their groups."""
        running, self._running = self._running, []
        before = len(self._caught)
        for each in running:
            signal_group(each.process, signal.SIGTERM)
        wait_for(
            lambda: len(self._caught) > before or all(has_ended(each.process) for each in running),
            self._grace,
        )
        for each in running:
            reap_group(each.process)

    def _collect(self) -> Iterator[Event]:
        for each in [each for each in self._running if has_ended(each.process)]:
            self._running.remove(each)
            self._free.append(each.slot)
            code = reap_group(each.process)
            yield Ended(each.job, each.slot, code, time.monotonic() - each.since, each.job.done)

    def _fill(self) -> Iterator[Event]:
        for _ in range(len(self._waiting)):
            if not self._free:
                return
            job = self._waiting.popleft()
            if job.done:
                yield Skipped(job)
            elif self._is_held(job):
                self._waiting.append(job)
            else:
                yield self._start(job)

    def _is_held(self, job: Job) -> bool:
        now = time.monotonic()
        if now < self._look_again.get(job.run, 0.0):
            return True
        if not self._held(job):
            return False
        self._look_again[job.run] = now + LOOK_AGAIN
        return True

    def _start(self, job: Job) -> Event:
        slot = self._free.popleft()
        environment = {**os.environ, **slot.environment}
        try:
            process = start_worker(job.argv, job.log_file, environment, own_session=True)
        except OSError as error:
            self._free.append(slot)
            return Ended(job, slot, None, 0.0, False, f"{job.label} cannot be started: {error}.")
        self._running.append(_Running(job, slot, process, time.monotonic()))
        return Started(job, slot, process.pid)
