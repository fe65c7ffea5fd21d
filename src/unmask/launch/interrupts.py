"""Ctrl-C and its relatives as something to look at instead of an exception in the middle of anything.

Knows signals of this process; what to do about them is decided elsewhere.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")


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
