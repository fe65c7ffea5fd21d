"""Ctrl-C and its relatives as something to look at instead of an exception in the middle of anything.

Knows signals of this process; what to do about them is decided elsewhere.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def caught_interrupts() -> Iterator[list[int]]:
    """Collect interrupts in a list while this lasts; a signal that was ignored before (nohup) stays ignored."""
    caught: list[int] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    before = {}
    for name in STOPPING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
