"""A derived index over all results, so that a table over ten thousand runs need not open ten thousand files.

It is one file, keyed by folder with size, time of change and inode of result.json, and replaced atomically.
Deleting it, damaging it or writing it from two processes at once costs time and nothing else; where the store
cannot be written to, it is simply not kept. Samples are never read here.
"""

import os
from pathlib import Path

import msgspec

from unmask.errors import UnmaskError
from unmask.store.files import write_atomically
from unmask.store.record import Record, record_of
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store

SCHEMA = 1
"""Raised when records change their layout: older indexes are then made anew."""
Mark = tuple[int, int, int]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A record and the state of the files it was taken from."""

    result: Mark
    retracted: Mark | None
    record: Record


class Index(msgspec.Struct, frozen=True):
    """The content of index.json."""

    schema: int
    entries: dict[str, Entry]


class Listing(msgspec.Struct, frozen=True):
    """All runs of a store at one moment."""

    names: list[str]
    """Every run folder, with a result or without."""
    records: dict[str, Record]
    """By folder, retracted ones too."""
    damaged: dict[str, str]
    """By folder: a sentence on a result that cannot be read."""


def records(store: Store, retracted: bool = False) -> list[Record]:
    """All results by folder; retracted ones only where they are asked for."""
    found = listing(store).records.values()
    return [record for record in found if retracted or record.retraction is None]


def listing(store: Store) -> Listing:
    """Every run, with the records of those that have a result."""
    file = store.root / "index.json"
    known = _read(file)
    names = store.names()
    entries: dict[str, Entry] = {}
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
                entry = Entry(mark, retracted, read_record(RunFolder(store.runs_folder / name)))
            except UnmaskError as error:
                damaged[name] = str(error)
                continue
        entries[name] = entry
    if entries != known:
        _write(file, entries)
    return Listing(names, {name: entry.record for name, entry in entries.items()}, damaged)


def read_record(run: RunFolder) -> Record:
    """The record of one run, from its files."""
    result = run.result()
    if result is None:
        raise UnmaskError(f"{run.name} has no result yet.")
    retraction = run.retraction()
    return record_of(run.name, result, str(retraction.get("reason")) if retraction else None)


def _mark(file: str) -> Mark | None:
    try:
        status = os.stat(file)  # noqa: PTH116 (asked twenty thousand times, where a Path takes longer than the disk)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _read(file: Path) -> dict[str, Entry]:
    try:
        index = msgspec.json.decode(file.read_bytes(), type=Index)
    except (OSError, ValueError, RecursionError):
        return {}
    return index.entries if index.schema == SCHEMA else {}


def _write(file: Path, entries: dict[str, Entry]) -> None:
    try:
        write_atomically(file, msgspec.json.encode(Index(SCHEMA, entries)), durable=False)
    except (UnmaskError, ValueError, OSError):
        return
