"""Runs workers on the slots of this machine: one after the other takes a run, one loop in the main thread.

Knows worker commands, the events that a pool reports, and how interrupts stop it; nothing of what a worker does. A
worker keeps its model for the next run of the same group; a run without a group, or after a failure, gets a fresh one.
Whether a run is done is read from disk when its turn comes, so several pools may work on the same runs. An interrupt
stops all workers, leaves what they have written, and ends in KeyboardInterrupt.

    with local_pool(commands, find_slots()) as events:
        for event in events:
            ...
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from unmask.launch.dialogue import FREE, HELD, StarterEnd
from unmask.launch.processes import (
    WorkerProcess,
    has_ended,
    reap_group,
    signal_group,
    start_worker,
    wait_for,
)
from unmask.launch.slots import WorkerSlot

RESULT = "result.json"
LOG = "launch.log"
STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
LOOK_AGAIN = 2.0
"""Seconds between two looks at a run that another pool works on."""


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """One run folder and the command that fills it."""

    run: str
    """The run's id."""
    folder: Path
    """The run's folder."""
    label: str
    """What people call the run."""
    argv: tuple[str, ...]
    """The worker's command, its program as an absolute path."""
    log: Path | None = None
    """Where its output is appended to; without it `launch.log` in the run's folder."""
    group: str | None = None
    """Runs of one group can be executed by one worker, one after the other; without it the run gets a fresh one."""

    @property
    def done(self) -> bool:
        """Whether the result is published."""
        return (self.folder / RESULT).exists()

    @property
    def log_file(self) -> Path:
        """Where its output is appended to."""
        return self.log or self.folder / LOG


# What a pool reports while it works.


@dataclass(frozen=True, slots=True)
class Started:
    """A run has begun, in a worker that was started for it or in one that had another run before."""

    command: WorkerCommand
    slot: WorkerSlot
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A run is over: its worker is through with it, has ended, or could not be started."""

    command: WorkerCommand
    slot: WorkerSlot
    code: int | None
    """Its exit code, negative for a signal; None if it was never started or cannot be killed."""
    seconds: float
    done: bool
    """Whether the result is published."""
    error: str | None = None
    """Why it could not be started."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run was done already when its turn came."""

    command: WorkerCommand


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment has passed."""

    running: tuple[WorkerCommand, ...]
    waiting: int


Event = Started | Ended | Skipped | Tick


# The pool.


@contextmanager
def local_pool(
    commands: Sequence[WorkerCommand],
    slots: Sequence[WorkerSlot],
    *,
    held: Callable[[WorkerCommand], bool] = lambda _command: False,
    pause: float = 0.2,
    grace: float = 10.0,
) -> Iterator[Iterator[Event]]:
    """Events of running all commands; leaving it early stops the workers.

    A run that is `held` (another pool works on it) waits until it is done or let go. Workers that are stopped have
    `grace` seconds; a second interrupt kills them.
    """
    with caught_interrupts() as caught:
        pool = _Pool(commands, slots, held, pause, grace, caught)
        try:
            yield pool.events()
        finally:
            pool.stop()
    if caught:
        raise KeyboardInterrupt


@dataclass(slots=True)
class _Running:
    command: WorkerCommand | None
    """None once it is through with its last run."""
    slot: WorkerSlot
    process: WorkerProcess
    since: float
    group: str | None
    is_leaving: bool = False


class _Pool:
    def __init__(
        self,
        commands: Sequence[WorkerCommand],
        slots: Sequence[WorkerSlot],
        held: Callable[[WorkerCommand], bool],
        pause: float,
        grace: float,
        caught: Sequence[int],
    ) -> None:
        self._waiting = deque(commands)
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
            under_way = tuple(each.command for each in self._running if each.command is not None)
            yield Tick(under_way, len(self._waiting))
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
        for each in list(self._running):
            has_gone = has_ended(each.process)
            yield from self._listen(each)
            if not has_gone:
                continue
            self._running.remove(each)
            self._free.append(each.slot)
            yield from self._over(each, reap_group(each.process))

    def _listen(self, worker: _Running) -> Iterator[Event]:
        """Hear what a worker that stays says of the run it was given."""
        word = worker.process.talk.word() if worker.process.talk is not None else None
        if word is None or worker.command is None:
            return
        if word == FREE:
            yield from self._over(worker, 0)
        elif word == HELD:
            self._look_again[worker.command.run] = time.monotonic() + LOOK_AGAIN
            self._waiting.append(worker.command)
        else:
            self._waiting.appendleft(worker.command)
            worker.is_leaving = True
        worker.command = None

    def _over(self, worker: _Running, code: int | None) -> Iterator[Event]:
        command, worker.command = worker.command, None
        if command is not None:
            yield Ended(command, worker.slot, code, time.monotonic() - worker.since, command.done)

    def _fill(self) -> Iterator[Event]:
        for worker in self._running:
            if worker.command is None and not worker.is_leaving:
                yield from self._give(worker)
        for _ in range(len(self._waiting)):
            if not self._free:
                return
            command = self._waiting.popleft()
            if command.done:
                yield Skipped(command)
            elif self._is_held(command):
                self._waiting.append(command)
            else:
                yield self._start(command)

    def _give(self, worker: _Running) -> Iterator[Event]:
        """The next run of its group for a worker that is free; without one it has leave to end."""
        assert worker.process.talk is not None, "a worker that does not stay ends with its run"
        for command in [each for each in self._waiting if each.group == worker.group]:
            if command.done:
                self._waiting.remove(command)
                yield Skipped(command)
            elif not self._is_held(command) and worker.process.talk.give(command.folder):
                self._waiting.remove(command)
                worker.command, worker.since = command, time.monotonic()
                yield Started(command, worker.slot, worker.process.pid)
                return
        worker.is_leaving = True
        worker.process.talk.release()

    def _is_held(self, command: WorkerCommand) -> bool:
        now = time.monotonic()
        if now < self._look_again.get(command.run, 0.0):
            return True
        if not self._held(command):
            return False
        self._look_again[command.run] = now + LOOK_AGAIN
        return True

    def _start(self, command: WorkerCommand) -> Event:
        slot = self._free.popleft()
        environment = {**os.environ, **slot.environment}
        talk = StarterEnd() if command.group is not None else None
        try:
            process = start_worker(command.argv, command.log_file, environment, own_session=True, talk=talk)
        except OSError as error:
            if talk is not None:
                talk.hang_up()
            self._free.append(slot)
            return Ended(command, slot, None, 0.0, False, f"{command.label} cannot be started: {error}.")
        self._running.append(_Running(command, slot, process, time.monotonic(), command.group))
        return Started(command, slot, process.pid)


@contextmanager
def caught_interrupts() -> Iterator[list[int]]:
    """Collect interrupts in a list while this lasts; a signal that was ignored before (nohup) stays ignored.

    Signals belong to the main thread: elsewhere nothing is caught. What ends in another thread than it began in (an
    iterator that is collected as garbage) is undone by the next signal, which then acts as it did before.
    """
    caught: list[int] = []
    before: dict[int, Any] = {}
    is_over = False

    def catch(number: int, _frame: FrameType | None) -> None:
        if not is_over:
            caught.append(number)
            return
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    for name in STOPPING if _is_main_thread() else ():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        is_over = True
        if _is_main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
