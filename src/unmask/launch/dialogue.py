"""What a worker that stays and the process that started it say to each other, line by line over one socket.

The starter gives folders of runs and, by closing, leave to end. The worker says a word when it is through with one:
FREE, HELD (another worker is at that run), or UNFIT (that run needs a fresh worker; this one ends). The socket is the
worker's standard input. Knows nothing of what a run is.
"""

import json
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from unmask.errors import UnmaskError

Word = Literal["free", "held", "unfit"]
FREE: Word = "free"
HELD: Word = "held"
UNFIT: Word = "unfit"
WORDS: tuple[Word, ...] = (FREE, HELD, UNFIT)
MOST_AT_ONCE = 1 << 16


class StarterEnd:
    """Held by the process that started the worker; never waits."""

    def __init__(self) -> None:
        self._socket, self.for_worker = socket.socketpair()
        self._socket.setblocking(False)
        self._heard = b""

    def give(self, folder: Path) -> bool:
        """Hand a run over; False where the worker is gone."""
        try:
            self._socket.sendall(json.dumps(str(folder)).encode() + b"\n")
        except OSError:
            return False
        return True

    def word(self) -> Word | None:
        """The next word that the worker has said, if there is one."""
        with suppress(OSError):
            self._heard += self._socket.recv(MOST_AT_ONCE)
        line, end, rest = self._heard.partition(b"\n")
        if not end:
            return None
        self._heard = rest
        return next((word for word in WORDS if word.encode() == line), None)

    def release(self) -> None:
        """Let the worker end when it is through; what it has said is still heard."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """The worker is gone; what it has said last was heard."""
        self._socket.close()
        self.for_worker.close()


class WorkerEnd:
    """Held by the worker, which from now on reads nothing from its standard input."""

    def __init__(self) -> None:
        if not stat.S_ISSOCK(os.fstat(0).st_mode):
            raise UnmaskError("--stay is for workers that `unmask run` has started; leave it out.")
        self._socket = socket.socket(fileno=os.dup(0))
        self._heard = self._socket.makefile("rb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def say(self, word: Word) -> None:
        """Tell how a run ended; nobody need be there to hear it."""
        with suppress(OSError):
            self._socket.sendall(word.encode() + b"\n")

    def next_folder(self) -> Path | None:
        """Wait for the next run; None where there is none."""
        try:
            line = self._heard.readline()
        except OSError:
            return None
        return Path(json.loads(line)) if line.endswith(b"\n") else None
