"""A derived index over all results, so that a table over ten thousand runs need not open ten thousand files.

It is one file, keyed by folder with size, time of change and inode of result.json, and replaced atomically.
Deleting it, damaging it or writing it from two processes at once costs time and nothing else; where the store
cannot be written to, it is simply not kept. A record is copied from a result field by field; samples are never read.
"""

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import read_plain
from unmask.store.files import write_atomically
from unmask.store.result import (
    AccuracyResult,
    Answers,
    AnyResult,
    AttemptNumber,
    MeasuredSpeedup,
    Number,
    PathName,
    TimedConfiguration,
)
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store

SCHEMA = 4
"""Raised when records change their layout: older indexes are then made anew."""
MOST_INDEX = 1 << 30
"""Bytes of an index that is read; a larger one would be that of a million runs."""
Mark = tuple[int, int, int]


class IndexedEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the policy acted on one path."""

    reuse_fraction: Number | None = None
    inactive: str | None = None


class IndexedTiming(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One configuration of a timing run."""

    tokens: int | None = None
    tokens_a_forward: Number | None = None
    tokens_per_second: Number | None = None
    requests_per_second: Number | None = None
    speedup: MeasuredSpeedup | None = None
    reuse_fraction: Number | None = None


class IndexRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What tables show of one result; fields mean what they mean in result.json."""

    id: str
    folder: str
    """Name of the run's folder."""
    kind: Literal["accuracy", "timing"]
    task: str
    identity: dict[str, Any]
    metric: str | None = None
    value: Number | None = None
    stderr: Number | None = None
    rows: int | None = None
    rows_of_the_set: int | None = None
    answers: Answers = Answers()
    effect: dict[str, IndexedEffect] = {}
    """By path: generation, scoring."""
    tokens_a_forward: Number | None = None
    sandbox: str | None = None
    control: str | None = None
    timings: dict[str, IndexedTiming] = {}
    """By configuration; empty for accuracy runs."""
    weights: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    diff_sha256: str | None = None
    host: str | None = None
    cpu: str | None = None
    gpu: str | None = None
    """Name of the first GPU."""
    device: str | None = None
    dtype: str | None = None
    finished: str | None = None
    seconds: Number | None = None
    attempt: AttemptNumber | None = None
    retraction: str | None = None
    """The reason, where the result was retracted."""

    @property
    def limit(self) -> int | None:
        """Samples that were asked for; None for all of them."""
        limit = (self.identity.get("task") or {}).get("limit")
        return None if limit is None else int(limit)

    @property
    def policy(self) -> dict[str, Any]:
        """The policy of an accuracy run."""
        return dict(self.identity.get("policy") or {})

    @property
    def decode(self) -> dict[str, Any]:
        """The decode settings of an accuracy run."""
        return dict(self.identity.get("decode") or {})


class IndexEntry(msgspec.Struct, frozen=True, array_like=True):
    """A record and the state of the files it was taken from."""

    result: Mark
    retracted: Mark | None
    record: IndexRecord


class Index(msgspec.Struct, frozen=True):
    """The content of index.json."""

    schema: int
    entries: dict[str, IndexEntry]


class Listing(msgspec.Struct, frozen=True):
    """All runs of a store at one moment."""

    names: list[str]
    """Every run folder, with a result or without."""
    records: dict[str, IndexRecord]
    """By folder, retracted ones too."""
    damaged: dict[str, str]
    """By folder: a sentence on a result that cannot be read."""


def records(store: Store, retracted: bool = False) -> list[IndexRecord]:
    """All results by folder; retracted ones only where they are asked for."""
    every = listing(store).records.values()
    return [record for record in every if retracted or record.retraction is None]


def listing(store: Store) -> Listing:
    """Every run, with the records of those that have a result."""
    file = store.root / "index.json"
    known = _read(file)
    names = store.names()
    entries: dict[str, IndexEntry] = {}
    damaged: dict[str, str] = {}
    runs = str(store.runs_folder)
    for name in names:
        mark = _mark(f"{runs}/{name}/result.json")
        if mark is None:
            continue
        retracted = _mark(f"{runs}/{name}/retracted.json")
        entry = known.get(name)
        if entry is None or (entry.result, entry.retracted) != (mark, retracted):
            try:
                entry = IndexEntry(mark, retracted, read_record(RunFolder(store.runs_folder / name)))
            except UnmaskError as error:
                damaged[name] = str(error)
                continue
        entries[name] = entry
    if entries != known:
        _write(file, entries)
    return Listing(names, {name: entry.record for name, entry in entries.items()}, damaged)


def read_record(run: RunFolder) -> IndexRecord:
    """The record of one run, from its files."""
    result = run.result()
    if result is None:
        raise UnmaskError(f"{run.name} has no result yet.")
    retraction = run.retraction()
    return index_record(run.name, result, retraction.reason if retraction else None)


def index_record(folder: str, result: AnyResult, retraction: str | None = None) -> IndexRecord:
    """The extract of a result."""
    environment = result.environment
    shared: dict[str, Any] = {
        "id": result.id,
        "folder": folder,
        "task": result.task,
        "identity": result.identity,
        "weights": result.identity.get("weights"),
        "commit": environment.commit,
        "dirty": environment.dirty,
        "diff_sha256": environment.diff_sha256,
        "host": environment.host,
        "cpu": environment.cpu,
        "gpu": environment.gpu,
        "device": environment.device,
        "dtype": environment.dtype,
        "finished": result.finished,
        "seconds": result.seconds,
        "attempt": result.attempt,
        "retraction": retraction,
    }
    if not isinstance(result, AccuracyResult):
        timings = {name: _timing(measured, result.path) for name, measured in result.configurations.items()}
        return IndexRecord(kind="timing", control=result.control, timings=timings, **shared)
    generated = result.effect.get("generation")
    return IndexRecord(
        kind="accuracy",
        metric=result.metric,
        value=result.value,
        stderr=result.stderr,
        rows=result.rows,
        rows_of_the_set=result.rows_of_the_set,
        answers=result.answers,
        tokens_a_forward=generated.tokens_a_forward(result.answers.tokens) if generated else None,
        effect={
            path: IndexedEffect(reuse_fraction=effect.reuse_fraction, inactive=effect.inactive)
            for path, effect in result.effect.items()
        },
        sandbox=result.sandbox or None,
        **shared,
    )


def _timing(measured: TimedConfiguration, path: PathName) -> IndexedTiming:
    return IndexedTiming(
        tokens=measured.tokens,
        tokens_a_forward=measured.effect.tokens_a_forward(measured.tokens) if path == "generation" else None,
        tokens_per_second=measured.tokens_per_second,
        requests_per_second=measured.requests_per_second,
        speedup=measured.speedup,
        reuse_fraction=measured.effect.reuse_fraction,
    )


def _mark(file: str) -> Mark | None:
    try:
        status = os.stat(file)  # noqa: PTH116 (asked twenty thousand times, where a Path takes longer than the disk)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _read(file: Path) -> dict[str, IndexEntry]:
    try:
        index = msgspec.json.decode(read_plain(file, MOST_INDEX), type=Index)
    except (OSError, ValueError, RecursionError):
        return {}
    return index.entries if index.schema == SCHEMA else {}


def _write(file: Path, entries: dict[str, IndexEntry]) -> None:
    try:
        write_atomically(file, msgspec.json.encode(Index(SCHEMA, entries)), durable=False, verbatim=True)
    except (UnmaskError, ValueError, OSError):
        return
