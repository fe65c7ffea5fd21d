"""The file of an attempt's answers: every line is written at once, and brought to the disk in groups.

A kill loses no line, since the system has it; a power cut loses those of the last `SYNC_SECONDS`, as long as somebody
calls `sync` that often. Knows lines and the disk, nothing of what an answer is.
"""

import os
import threading
from pathlib import Path
from typing import BinaryIO

from unmask.errors import UnmaskError
from unmask.store.files import append, explained, open_to_append

SYNC_SECONDS = 2.0
"""How long a line may wait to be brought to the disk."""


class AnswerFile:
    """Written by one thread; another one may bring it to the disk meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None
        self._lock = threading.Lock()
        self._cut: bytes = b""
        self._waits = False
        self._refusal: OSError | None = None

    def write(self, line: bytes) -> None:
        """Add a line; once this returns, only a power cut can take it."""
        self._raise_refusal()
        if self._stream is None:
            try:
                self._stream = open_to_append(self.path)
            except OSError as error:
                raise UnmaskError(f"{self.path} cannot be written ({error.strerror}).") from error
        self._cut = line
        append(self._stream, self.path, line)
        self._cut = b""
        self._waits = True

    def sync(self) -> None:
        """Bring all lines so far to the disk; what the disk refuses is said by the next call that writes or closes."""
        with self._lock:
            if self._stream is None or not self._waits:
                return
            self._waits = False
            try:
                os.fsync(self._stream.fileno())
            except OSError as error:
                self._refusal = error

    def close(self) -> None:
        """Bring everything to the disk and let go of the file; a line that an interrupt cut short is written now."""
        try:
            if self._cut:
                self.write(self._cut)
        finally:
            self._let_go()
        self._raise_refusal()

    def _let_go(self) -> None:
        self.sync()
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            with explained(self.path):
                raise refusal
