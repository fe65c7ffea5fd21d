"""One attempt at a run: a folder of its own, so that two writers never share a file.

Knows the files of an attempt and the structs in them, how they are written so that a kill costs at most the last
answers, and how they are read; nothing else opens them. Whether a run is done, failed or running is judged in
`state.py`.
"""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from unmask.cost.work_sums import WorkRow
from unmask.errors import UnmaskError
from unmask.reading import is_countable, read_plain_text
from unmask.store.answer_file import SYNC_SECONDS, AnswerFile
from unmask.store.computation import Computation
from unmask.store.files import (
    canonical,
    explained,
    make_folder,
    read_lines,
    read_struct,
    write_atomically,
    write_chunks,
)
from unmask.store.process import ProcessMark, job_of, slurm_ids, this_process
from unmask.store.redaction import redacted_arguments
from unmask.store.result import Number, SharedWork
from unmask.store.worker_file import WorkerName, held_run, store_of

BEAT_SECONDS = 20.0
MOST_PROGRESS = 100
"""Bytes of the file `progress`: two numbers."""
ENDS = ("failure.json", "interrupted.json", "stopped.json")
"""Files of which one says that an attempt is over, where it has no result."""
CANCEL = "cancel"
"""The file that asks the attempt to end."""
CANCEL_SIGNAL = signal.SIGUSR1
"""What an attempt sends to its own process when somebody asks it to end."""
NO_MEMORY = "The machine has not enough memory; lower batch_size or ask for more."


class AttemptRecord(ProcessMark, frozen=True, kw_only=True):
    """attempt.json: the process that works on a run, written before it does anything else."""

    schema: int = 1
    """Version of the meaning of these fields."""
    run: str | None = None
    """Id of the run."""
    slurm: dict[str, str | None] = msgspec.field(default_factory=dict)
    """Ids of the SLURM job; all null elsewhere."""
    argv: list[str] = msgspec.field(default_factory=list)
    """Command line of the process, without secrets."""
    started: str | None = None
    """When the attempt began, in UTC."""
    worker: WorkerName | msgspec.UnsetType = msgspec.UNSET
    """Name of the worker's file, which says whether the worker is still at this run; absent where the process takes no
    other run."""

    @property
    def job(self) -> str | None:
        """The job as squeue knows it: `17`, or `17_3` in an array; None without SLURM."""
        return job_of(self.slurm)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """failure.json: why an attempt has no result."""

    schema: int = 1
    """Version of the meaning of these fields."""
    reason: str = "no reason is given"
    """One sentence for people, without secrets."""
    time: str | None = None
    """When the attempt failed, in UTC."""


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """interrupted.json: that an attempt was ended from outside; a later attempt goes on from its answers."""

    schema: int = 1
    """Version of the meaning of these fields."""
    reason: Literal["cancelled", "interrupted"] = "interrupted"
    """`cancelled`: somebody stopped this run; `interrupted`: its worker was told to end."""
    time: str | None = None
    """When the attempt was ended, in UTC."""


class GeneratedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A line of answers.jsonl: one generated answer, kept so that a later attempt need not compute it again."""

    key: str
    """Digest of the request's content."""
    text: str
    """The answer."""
    tokens: int
    """Accepted tokens."""
    finish: str
    """What ended the answer: a stop token, a stop string, the limit of length, or the end of the context."""
    effect: WorkRow
    """Counted work: requests, counts by kind of forward, calls of each layer, operations, operations skipped."""
    shared: SharedWork | msgspec.UnsetType = msgspec.UNSET
    """What other requests of the batch spared this one."""


class ScoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A line of answers.jsonl: the scores of all requests with one prefix."""

    key: str
    """Digest of the requests' content."""
    scores: list[tuple[Number, bool]]
    """For each request: the log likelihood of its target, and whether greedy decoding would write the target."""
    inactive: str | None
    """Why the policy could not act, if it could not."""
    effect: WorkRow
    """Counted work: requests, counts by kind of forward, calls of each layer, operations, operations skipped."""
    shared: SharedWork | msgspec.UnsetType = msgspec.UNSET
    """What other requests of the batch, and those with this prefix, spared these."""
    stderrs: list[Number] | msgspec.UnsetType = msgspec.UNSET
    """For each request: the standard error of its log likelihood; absent where nothing is estimated."""


AnyAnswer = GeneratedAnswer | ScoredGroup
"""A line of answers.jsonl; one with scores is a `ScoredGroup`."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A line of samples.jsonl: one sample of a task with its prompt, its answer and its metrics."""

    id: str
    """Task and number of the sample."""
    task: str | None = None
    """Task that the sample belongs to; in a group, the subtask."""
    doc_id: int | None = None
    """Number of the sample in its task."""
    correct: Number | None = None
    """Value of the headline metric; null where the sample has none."""
    metrics: dict[str, Any] = {}
    """All metrics of the sample, by name and filter."""
    prompt: str = ""
    """The prompt as the model read it."""
    answer: str = ""
    """The generated answer, or the option with the highest score."""
    target: str = ""
    """The expected answer, as the task has it."""
    tokens: int | None = None
    """Accepted tokens of a generated answer."""
    finish: str | None = None
    """What ended a generated answer."""
    asked: int | msgspec.UnsetType = msgspec.UNSET
    """Tokens that were asked for, where answers depend on it; absent elsewhere."""
    scores: list[Number] | None = None
    """Log likelihoods of the options; null for a generated answer."""


class Attempt:
    """A numbered attempt; the process that made it writes, every other one only reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = folder.name
        self._answers = AnswerFile(folder / "answers.jsonl")
        self._progress_written: float | None = None

    @classmethod
    def create(cls, folder: Path, run: str, worker: str | None = None) -> Self:
        """Take the next free number; a folder with a number is never without its attempt.json."""
        make_folder(folder)
        record = AttemptRecord(
            **msgspec.structs.asdict(this_process()),
            run=run,
            slurm=slurm_ids(),
            argv=redacted_arguments(sys.argv),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            worker=worker or msgspec.UNSET,
        )
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

    def answer(self, answer: AnyAnswer) -> None:
        """Add an answer; from now on only a power cut can take it, and after `SYNC_SECONDS` nothing."""
        self._answers.write(canonical(answer) + b"\n")

    def close(self) -> None:
        """Bring all answers to the disk and let go of the file."""
        self._answers.close()

    def progress(self, done: int, total: int) -> None:
        """Write down how far the attempt is; at most once a second, except at the end."""
        now = time.monotonic()
        if done < total and self._progress_written is not None and now - self._progress_written < 1:
            return
        self._progress_written = now
        write_atomically(self.folder / "progress", f"{done} {total}\n", durable=False)

    @contextmanager
    def beating(self, seconds: float = BEAT_SECONDS, often: float = SYNC_SECONDS) -> Iterator[None]:
        """Keep the age of `progress` low while the process lives, however long one answer takes.

        Meanwhile answers are brought to the disk, and a wish that the run ends becomes a signal to this process.
        """
        stop = threading.Event()

        def beat() -> None:
            last, passed_on = time.monotonic(), False
            while not stop.wait(min(seconds, often)):
                self._answers.sync()
                if not passed_on and self.is_cancelled():
                    passed_on = True
                    os.kill(os.getpid(), CANCEL_SIGNAL)
                if time.monotonic() - last >= seconds:
                    last = time.monotonic()
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

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep the heartbeat up and write down how the attempt ends where it has no result.

        An error is a failure; an interrupt is none.
        """
        try:
            with self.beating():
                yield
        except UnmaskError as error:
            self.fail(str(error))
            raise
        except MemoryError:
            self.fail(NO_MEMORY)
            raise UnmaskError(NO_MEMORY) from None
        except Exception as error:
            self.fail(f"{type(error).__name__}: {' '.join(str(error).split())}")
            raise
        except BaseException:
            self.interrupt()
            raise
        finally:
            self.close()

    def compute_as(self, computation: Computation) -> None:
        """Say what kind of computation the answers come from, before the first of them."""
        write_atomically(self.folder / "computation.json", canonical(computation) + b"\n")

    def write_samples(self, samples: Iterable[Sample]) -> None:
        """Write every sample with its metrics, whole at the end, holding one at a time."""
        write_chunks(self.samples_file, (canonical(sample) + b"\n" for sample in samples))

    def fail(self, reason: str) -> bool:
        """Say why there is no result; False where not even that can be written."""
        failure = Failure(reason=reason, time=datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            write_atomically(self.folder / "failure.json", canonical(failure) + b"\n")
        except UnmaskError:
            return False
        return True

    def interrupt(self) -> bool:
        """Say that the attempt was ended from outside; False where not even that can be written."""
        reason: Literal["cancelled", "interrupted"] = "cancelled" if self.is_cancelled() else "interrupted"
        end = Interruption(reason=reason, time=datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            write_atomically(self.folder / "interrupted.json", canonical(end) + b"\n")
        except UnmaskError:
            return False
        return True

    def withdraw(self) -> None:
        """Take back an attempt that has not begun, because another worker is at its run."""
        doomed = self.folder.with_name(f".withdrawn.{self.number}.{os.getpid()}")
        with explained(self.folder):
            self.folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    # What anyone reads, and the one wish that anyone may leave.

    def cancel(self) -> None:
        """Ask the worker, wherever it is, to end this attempt and to take the next run."""
        write_atomically(self.folder / CANCEL, b"", durable=False)

    def is_cancelled(self) -> bool:
        """Whether somebody has asked the attempt to end."""
        return (self.folder / CANCEL).exists()

    @property
    def log(self) -> Path:
        """Where the worker's output goes."""
        return self.folder / "log.txt"

    @property
    def samples_file(self) -> Path:
        """Where the samples are, once the attempt has written them."""
        return self.folder / "samples.jsonl"

    def record(self) -> AttemptRecord:
        """attempt.json; an empty record where it is damaged: a table must not break over it."""
        try:
            return read_struct(self.folder / "attempt.json", AttemptRecord, "") or AttemptRecord()
        except UnmaskError:
            return AttemptRecord()

    def computation(self, strict: bool = False) -> Computation | None:
        """computation.json, which is like no other where it is damaged; None before the model was loaded.

        One that is only out of reach is an error to who is `strict`.
        """
        mend = "mend that and run the command again"
        try:
            return read_struct(self.folder / "computation.json", Computation, mend)
        except UnmaskError as error:
            if strict and isinstance(error.__context__, OSError):
                raise
            return Computation()

    def failure(self) -> Failure | None:
        """failure.json, if the attempt has failed."""
        try:
            return read_struct(self.folder / "failure.json", Failure, "delete it and run the command again")
        except UnmaskError as error:
            return Failure(reason=str(error))

    def interruption(self) -> Interruption | None:
        """interrupted.json, if the attempt was ended from outside."""
        try:
            return read_struct(self.folder / "interrupted.json", Interruption, "")
        except UnmaskError:
            return Interruption()

    def is_over(self) -> bool:
        """Whether it has ended by a file, or its worker has turned to another run; a killed worker writes neither."""
        if any((self.folder / name).exists() for name in ENDS):
            return True
        record = self.record()
        if not isinstance(record.worker, str):
            return False
        return held_run(store_of(self.folder.parents[1]), record.worker) != record.run

    def reached(self) -> tuple[int, int] | None:
        """Answers given and answers wanted, as the file `progress` says."""
        try:
            done, total = read_plain_text(self.folder / "progress", MOST_PROGRESS).split()
            return int(done), int(total)
        except (OSError, ValueError):
            return None

    def last_beat(self) -> float | None:
        """When the attempt last gave a sign of life, by the clock of the file system."""
        for name in ("progress", "attempt.json"):
            with suppress(OSError):
                return (self.folder / name).stat().st_mtime
        return None

    def answers(self) -> Iterator[AnyAnswer]:
        """Its answers in the order in which they came."""
        mend = f"delete the folder {self.folder} and run again: only its answers are computed anew"
        return read_lines(self.folder / "answers.jsonl", decode_answer, mend)

    def samples(self) -> Iterator[Sample]:
        """Its samples, one at a time."""
        return read_samples(self.samples_file)


def read_samples(file: Path) -> Iterator[Sample]:
    """The samples in a file that an attempt has written, one at a time."""
    mend = "remove the run with `unmask rm` and run it again"
    decoder = msgspec.json.Decoder(Sample)

    def decode(line: bytes) -> Sample:
        sample = decoder.decode(line)
        if not is_countable((sample.correct, sample.metrics, sample.scores)):
            raise ValueError("it holds a number with which nobody can calculate")
        return sample

    return read_lines(file, decode, mend)


def decode_answer(line: bytes) -> AnyAnswer:
    """One line of answers.jsonl."""
    fields = msgspec.json.decode(line, type=dict[str, Any])
    if "scores" in fields:
        return msgspec.convert(fields, ScoredGroup)
    return msgspec.convert(fields, GeneratedAnswer)


def attempts_in(folder: Path, strict: bool = False) -> list[Attempt]:
    """The attempts in a folder by their number; a folder that cannot be read has none, or is an error if `strict`."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.name.isdecimal()]
    except FileNotFoundError:
        return []
    except OSError as error:
        if strict:
            raise UnmaskError(
                f"{folder} cannot be read ({error.strerror}); mend that and run again."
            ) from None
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
