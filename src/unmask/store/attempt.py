"""One attempt at a run: a folder of its own, so that two writers never share a file.

Knows the files of an attempt, how they are written so that a kill costs at most the last answers, and how they
are read. Whether a run is done, failed or running is judged in `state.py`.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

from unmask.errors import UnmaskError
from unmask.store.files import (
    append_durably,
    canonical,
    make_folder,
    read_json_if_there,
    read_lines,
    write_atomically,
    write_chunks,
)
from unmask.store.process import slurm_ids, this_process
from unmask.store.redaction import redacted, redacted_arguments

BUFFERED_LINES = 256
"""Answers that are held back at most when nobody flushes."""
BEAT_SECONDS = 20.0


class Attempt:
    """A numbered attempt; the process that made it writes, every other one only reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = folder.name
        self._waiting: list[bytes] = []
        self._stream: BinaryIO | None = None
        self._told: float | None = None

    @classmethod
    def create(cls, folder: Path, run: str) -> Self:
        """Take the next free number; a folder with a number is never without its attempt.json."""
        make_folder(folder)
        record = {
            "schema": 1,
            "run": run,
            **this_process(),
            "slurm": slurm_ids(),
            "argv": redacted_arguments(sys.argv),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        prepared = folder / f".new.{os.getpid()}.{time.monotonic_ns()}"
        make_folder(prepared)
        try:
            write_atomically(prepared / "attempt.json", canonical(record) + b"\n")
            number = max((int(attempt.number) for attempt in attempts_in(folder)), default=0) + 1
            while not _rename(prepared, folder / f"{number:04}"):
                number += 1
        finally:
            shutil.rmtree(prepared, ignore_errors=True)
        return cls(folder / f"{number:04}")

    # What the worker writes.

    def answer(self, key: str, value: Mapping[str, Any]) -> None:
        """Add an answer under its key; it is safe once `flush` has returned."""
        self._waiting.append(canonical({**value, "key": key}) + b"\n")
        if len(self._waiting) >= BUFFERED_LINES:
            self.flush()

    def flush(self) -> None:
        """Put all answers so far on the disk."""
        if not self._waiting:
            return
        path = self.folder / "answers.jsonl"
        if self._stream is None:
            try:
                self._stream = path.open("ab", buffering=0)
            except OSError as error:
                raise UnmaskError(f"{path} cannot be written ({error.strerror}).") from error
        append_durably(self._stream, path, b"".join(self._waiting))
        self._waiting.clear()

    def close(self) -> None:
        """Flush and let go of the file."""
        try:
            self.flush()
        finally:
            if self._stream is not None:
                self._stream.close()
                self._stream = None

    def progress(self, done: int, total: int) -> None:
        """Tell how far the attempt is; more often than once a second only the end is written."""
        now = time.monotonic()
        if done < total and self._told is not None and now - self._told < 1:
            return
        self._told = now
        write_atomically(self.folder / "progress", f"{done} {total}\n", durable=False)

    @contextmanager
    def beating(self, seconds: float = BEAT_SECONDS) -> Iterator[None]:
        """Keep the age of `progress` low while the process lives, however long one answer takes."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(seconds):
                with suppress(OSError):
                    os.utime(self.folder / "progress")

        if not (self.folder / "progress").exists():
            write_atomically(self.folder / "progress", "0 0\n", durable=False)
        thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def samples(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write every row with its metrics, whole at the end, holding one at a time."""
        write_chunks(self.folder / "samples.jsonl", (canonical(row) + b"\n" for row in rows))

    def fail(self, reason: str) -> bool:
        """Say why there is no result; False where not even that can be written."""
        told = {
            "schema": 1,
            "reason": redacted(reason),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            write_atomically(self.folder / "failure.json", canonical(told) + b"\n")
        except UnmaskError:
            return False
        return True

    # What anyone reads.

    @property
    def log(self) -> Path:
        """Where the worker's output goes."""
        return self.folder / "log.txt"

    def record(self) -> dict[str, Any]:
        """attempt.json, or nothing where it is damaged: a table must not break over it."""
        try:
            return read_json_if_there(self.folder / "attempt.json") or {}
        except UnmaskError:
            return {}

    def failure(self) -> dict[str, Any] | None:
        """failure.json, if the attempt has failed."""
        try:
            return read_json_if_there(self.folder / "failure.json")
        except UnmaskError as error:
            return {"schema": 1, "reason": str(error)}

    def reached(self) -> tuple[int, int] | None:
        """Answers done and in all, as told last."""
        try:
            done, total = (self.folder / "progress").read_text(encoding="ascii").split()
            return int(done), int(total)
        except (OSError, ValueError):
            return None

    def last_beat(self) -> float | None:
        """When the attempt last gave a sign of life, by the clock of the file system."""
        for name in ("progress", "attempt.json"):
            with suppress(OSError):
                return (self.folder / name).stat().st_mtime
        return None

    def answers(self) -> Iterator[dict[str, Any]]:
        """Its answers in the order in which they came."""
        mend = f"delete the folder {self.folder} and run again: only its answers are computed anew"
        return read_lines(self.folder / "answers.jsonl", mend)

    def read_samples(self) -> Iterator[dict[str, Any]]:
        """Its rows, one at a time."""
        return read_lines(self.folder / "samples.jsonl", "remove the run with `unmask rm` and run it again")


def attempts_in(folder: Path) -> list[Attempt]:
    """The attempts in a folder by their number."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
    return [Attempt(folder / name) for name in sorted(names, key=int)]


def _rename(prepared: Path, target: Path) -> bool:
    """Give a prepared folder its number; False where another process took it first."""
    try:
        prepared.rename(target)
    except OSError as error:
        if target.exists():
            return False
        raise UnmaskError(f"{target} cannot be made ({error.strerror}); mend that and run again.") from error
    return True
