"""Summaries of other programs in the store: kept byte for byte, listed apart, never mixed with own runs.

An import is a folder `foreign/<name>` with the tree of original files and records.json, which is taken from
them. Repeating an import completes it; other content under the same name is refused before anything is written.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from unmask.errors import UnmaskError
from unmask.store.files import make_folder, parse_object, write_atomically
from unmask.store.foreign_record import ForeignRecord, MetricOf, foreign_record
from unmask.store.store import Store

SUMMARY = "summary.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


class Problem(msgspec.Struct, frozen=True):
    """A file that could not be imported."""

    path: str
    says: str
    """One sentence."""


class _Import(msgspec.Struct, frozen=True, kw_only=True):
    """The content of records.json."""

    schema: int
    name: str
    source: str
    imported: str
    records: list[ForeignRecord]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    name: str
    records: list[ForeignRecord]
    """All records of the import, those of earlier calls too."""
    added: int
    problems: list[Problem]


def import_tree(folder: Path, store: Store, name: str, metric_of: MetricOf) -> Imported:
    """Import every summary.json below a folder; bad files are listed and the rest is taken."""
    if not NAME.fullmatch(name):
        raise UnmaskError(f"{name!r} is no name for an import; use letters, digits, dots, - and _.")
    if not folder.is_dir():
        raise UnmaskError(
            f"{folder} is no folder; name one that holds <task>/<configuration>/{SUMMARY} files."
        )
    files = {file.relative_to(folder).as_posix(): file for file in _summaries(folder)}
    if not files:
        raise UnmaskError(
            f"{folder} holds no {SUMMARY}; name a folder of <task>/<configuration>/{SUMMARY} files."
        )
    contents: dict[str, bytes] = {}
    found: dict[str, ForeignRecord] = {}
    problems: list[Problem] = []
    for path, file in files.items():
        try:
            contents[path] = file.read_bytes()
            digest = hashlib.sha256(contents[path]).hexdigest()
            found[path] = foreign_record(name, path, digest, parse_object(contents[path]), metric_of)
        except OSError as error:
            problems.append(Problem(path, f"{file} was left out: it cannot be read ({error.strerror})."))
        except (ValueError, UnmaskError) as error:
            problems.append(Problem(path, f"{file} was left out: {error}."))
    return _keep(store, name, folder, found, contents, problems)


def foreign(store: Store) -> list[ForeignRecord]:
    """All imported records by import, task and configuration."""
    found = [record for name in imports(store) for record in foreign_of(store, name)]
    return sorted(found, key=lambda one: (one.name, one.task, one.limit or 0.0, one.configuration, one.path))


def imports(store: Store) -> list[str]:
    """Names of all imports."""
    return sorted(file.parent.name for file in (store.root / "foreign").glob("*/records.json"))


def foreign_of(store: Store, name: str) -> list[ForeignRecord]:
    """The records of one import."""
    file = store.root / "foreign" / name / "records.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Import).records
    except FileNotFoundError:
        raise UnmaskError(f"There is no import {name!r} in {store.root}.") from None
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise UnmaskError(f"{file} is damaged; delete it and import the same folder again.") from None


def _keep(
    store: Store,
    name: str,
    source: Path,
    found: dict[str, ForeignRecord],
    contents: dict[str, bytes],
    problems: list[Problem],
) -> Imported:
    place = store.root / "foreign" / name
    known = {record.path: record for record in foreign_of(store, name)} if name in imports(store) else {}
    for path in found:
        kept = place / "files" / path
        if kept.exists() and kept.read_bytes() != contents[path]:
            raise UnmaskError(
                f"The import {name!r} already holds other content for {path}; nothing was changed, so choose "
                "another name."
            )
    added = [path for path in found if path not in known]
    for path in found:
        kept = place / "files" / path
        if not kept.exists():
            make_folder(kept.parent)
            write_atomically(kept, contents[path])
    records = sorted({**known, **found}.values(), key=lambda record: record.path)
    if {**known, **found} != known:
        content = _Import(
            schema=1,
            name=name,
            source=str(source.resolve()),
            imported=datetime.now(UTC).isoformat(timespec="seconds"),
            records=records,
        )
        make_folder(place)
        write_atomically(place / "records.json", msgspec.json.encode(content) + b"\n")
    return Imported(name, records, len(added), problems)


def _summaries(folder: Path) -> Iterator[Path]:
    """All summaries below a folder, sorted; links to folders are not followed."""
    return iter(sorted(file for file in folder.rglob(SUMMARY) if file.is_file()))
