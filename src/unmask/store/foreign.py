"""Summaries of other programs in the store: kept byte for byte, listed apart, never mixed with own runs.

An import is a folder `foreign/<name>` with the tree of original files and records.json, which is taken from
them. Repeating an import completes it; other content under the same name is refused before anything is written.
A record's value is the named metric of its task: such files took the first number they found as `accuracy`, so it is
compared with the metrics beside it, and every doubt becomes a note.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import is_countable, read_plain
from unmask.spec.recipe import NAME
from unmask.store.files import make_folder, parse_object, write_atomically
from unmask.store.redaction import redacted_bytes
from unmask.store.result import stderr_key
from unmask.store.store import Store

SUMMARY = "summary.json"
MOST_SUMMARY = 64 << 20
LIMITED = re.compile(r"(?P<task>.+)_limit_(?P<limit>\d+(?:\.\d+)?)")
MetricOf = Callable[[str], str]
"""The metric that stands for a task; raises UnmaskError for a task without one."""


class ForeignRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One imported summary."""

    foreign: bool = True
    """Always: such a record never counts as a run of this store."""
    name: str
    """Of the import."""
    path: str
    """Where the summary lies, below the import's folder."""
    sha256: str
    task: str
    configuration: str
    limit: float | None
    """Rows of each subtask that were asked for; None for all."""
    metric: str | None
    """What `value` is; None where the file does not say."""
    value: float | None
    stderr: float | None
    told: float | None
    """The file's own `accuracy`."""
    groups: dict[str, dict[str, Any]]
    """Value and standard error by subtask, where they are given."""
    tokens: int | None
    seconds: float | None
    tokens_per_second: float | None
    commit: str | None
    dirty: bool | None
    host: str | None
    gpu: str | None
    timestamp: str | None
    model: str | None
    notes: tuple[str, ...]
    """Sentences about what is doubtful."""
    summary: dict[str, Any]
    """The file's whole content."""


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
    records: dict[str, ForeignRecord] = {}
    problems: list[Problem] = []
    for path, file in files.items():
        try:
            contents[path] = read_plain(file, MOST_SUMMARY)
            if redacted_bytes(contents[path]) != contents[path]:
                raise UnmaskError("it holds what looks like a secret, which must be taken out first")
            digest = hashlib.sha256(contents[path]).hexdigest()
            records[path] = foreign_record(name, path, digest, parse_object(contents[path]), metric_of)
        except OSError as error:
            problems.append(Problem(path, f"{file} was left out: it cannot be read ({error.strerror})."))
        except (ValueError, UnmaskError) as error:
            problems.append(Problem(path, f"{file} was left out: {error}."))
    return _keep(store, name, folder, records, contents, problems)


def imports(store: Store) -> list[str]:
    """Names of all imports."""
    names = (file.parent.name for file in (store.root / "foreign").glob("*/records.json"))
    return sorted(filter(NAME.fullmatch, names))


def foreign_of(store: Store, name: str) -> list[ForeignRecord]:
    """The records of one import."""
    file = store.root / "foreign" / name / "records.json"
    try:
        return msgspec.json.decode(read_plain(file), type=_Import).records
    except FileNotFoundError:
        raise UnmaskError(f"There is no import {name!r} in {store.root}.") from None
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise UnmaskError(f"{file} is damaged; delete it and import the same folder again.") from None


def _keep(
    store: Store,
    name: str,
    source: Path,
    added_records: dict[str, ForeignRecord],
    contents: dict[str, bytes],
    problems: list[Problem],
) -> Imported:
    place = store.root / "foreign" / name
    known = {record.path: record for record in foreign_of(store, name)} if name in imports(store) else {}
    for path in added_records:
        kept = place / "files" / path
        if kept.exists() and read_plain(kept) != contents[path]:
            raise UnmaskError(
                f"The import {name!r} already holds other content for {path}; nothing was changed, so choose "
                "another name."
            )
    new_paths = [path for path in added_records if path not in known]
    for path in added_records:
        kept = place / "files" / path
        if not kept.exists():
            make_folder(kept.parent)
            write_atomically(kept, contents[path], verbatim=True)
    records = sorted({**known, **added_records}.values(), key=lambda record: record.path)
    if {**known, **added_records} != known:
        content = _Import(
            schema=1,
            name=name,
            source=str(source.resolve()),
            imported=datetime.now(UTC).isoformat(timespec="seconds"),
            records=records,
        )
        make_folder(place)
        write_atomically(place / "records.json", msgspec.json.encode(content) + b"\n")
    return Imported(name, records, len(new_paths), problems)


def _summaries(folder: Path) -> Iterator[Path]:
    """All summaries below a folder, sorted; links to folders are not followed."""
    return iter(sorted(file for file in folder.rglob(SUMMARY) if file.is_file()))


def foreign_record(
    name: str, path: str, sha256: str, summary: dict[str, Any], metric_of: MetricOf
) -> ForeignRecord:
    """Take a summary apart; a file without task, configuration or a sensible accuracy is refused."""
    if not is_countable(summary):
        raise UnmaskError("it holds a number with which nobody can calculate")
    task, configuration = _text(summary, "task"), _text(summary, "config")
    accuracy = _number(summary, "accuracy", "its accuracy")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise UnmaskError(f"its accuracy {accuracy} does not lie between 0 and 1")
    notes: list[str] = []
    _check_place(path, task, configuration, notes)
    limit = _limit(path, task, summary, notes)
    metric, value, stderr = _headline(task, accuracy, summary, metric_of, notes)
    speed, git = _part(summary, "throughput"), _part(summary, "git")
    tokens = _number(speed, "tokens_generated", "its number of tokens")
    return ForeignRecord(
        name=name,
        path=path,
        sha256=sha256,
        task=task,
        configuration=configuration,
        limit=limit,
        metric=metric,
        value=value,
        stderr=stderr,
        told=accuracy,
        groups=_groups(task, summary, metric_of),
        tokens=None if tokens is None else int(tokens),
        seconds=_number(speed, "total_time_s", "its time"),
        tokens_per_second=_number(speed, "tokens_per_s", "its speed"),
        commit=_optional(git, "commit"),
        dirty=git["dirty"] if isinstance(git.get("dirty"), bool) else None,
        host=_optional(_part(summary, "environment"), "hostname"),
        gpu=_optional(_part(summary, "gpu_info"), "gpu_name"),
        timestamp=_optional(summary, "timestamp"),
        model=_optional(_part(summary, "model_args"), "model_path"),
        notes=tuple(notes),
        summary=summary,
    )


def _headline(
    task: str, accuracy: float | None, summary: Mapping[str, Any], metric_of: MetricOf, notes: list[str]
) -> tuple[str | None, float | None, float | None]:
    """Metric, value and standard error: by name where the file has metrics, else what it tells."""
    row = _part(_part(summary, "group_results"), task)
    wanted = _metric(task, metric_of)
    if wanted is not None and _is_number(row.get(wanted)):
        value = float(row[wanted])
        if accuracy is None or abs(value - accuracy) > 1e-12:
            notes.append(f"Its accuracy says {accuracy}, but its {wanted} is {value}; the latter counts.")
        return wanted, value, _stderr(row, wanted)
    same = [
        key
        for key, number in row.items()
        if "_stderr" not in key and _is_number(number) and number == accuracy
    ]
    if accuracy is None:
        notes.append("It has no accuracy.")
    elif len(same) == 1:
        notes.append(f"Its accuracy is {same[0]}, not {wanted or 'a metric that is known for this task'}.")
        return same[0], accuracy, _stderr(row, same[0])
    else:
        notes.append("It does not say which metric its accuracy is.")
    return None, accuracy, None


def _groups(task: str, summary: Mapping[str, Any], metric_of: MetricOf) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for name, row in _part(summary, "group_results").items():
        metric = _metric(name, metric_of) or _metric(task, metric_of)
        if name != task and isinstance(row, Mapping) and _is_number(row.get(metric)):
            groups[name] = {
                "metric": metric,
                "value": float(row[metric]),
                "stderr": _stderr(row, str(metric)),
            }
    return groups


def _limit(path: str, task: str, summary: Mapping[str, Any], notes: list[str]) -> float | None:
    """The limit in the file, else that in a folder's name; where they contradict each other both are told."""
    limit = _number(_part(summary, "eval_params"), "limit", "its limit")
    named = [
        match for folder in path.split("/") if (match := LIMITED.fullmatch(folder)) and match["task"] == task
    ]
    in_name = float(named[-1]["limit"]) if named else None
    if limit is not None and in_name is not None and limit != in_name:
        notes.append(f"Its folder says a limit of {in_name:g} and its content {limit:g}; the content counts.")
    return in_name if limit is None else limit


def _check_place(path: str, task: str, configuration: str, notes: list[str]) -> None:
    """Note where the folders <task>/<configuration> say something else than the content."""
    *_, above, below = ("", "", *path.split("/")[:-1])
    if below and below != configuration:
        notes.append(
            f"Its folder is called {below} and its configuration {configuration}; the latter counts."
        )
    limited = LIMITED.fullmatch(above)
    if above and task not in (above, limited and limited["task"]):
        notes.append(f"Its folder is called {above} and its task {task}; the latter counts.")


def _metric(task: str, metric_of: MetricOf) -> str | None:
    try:
        return metric_of(task)
    except UnmaskError:
        return None


def _stderr(row: Mapping[str, Any], metric: str) -> float | None:
    error = row.get(stderr_key(metric))
    return float(error) if error is not None and _is_number(error) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(part: Mapping[str, Any], name: str, what: str) -> float | None:
    value = part.get(name)
    if value is None:
        return None
    if not _is_number(value):
        raise UnmaskError(f"{what} is {str(value)[:40]!r}, which is no number")
    return float(value)


def _text(summary: Mapping[str, Any], name: str) -> str:
    value = summary.get(name)
    if not isinstance(value, str) or not value:
        raise UnmaskError(f"it has no {name}")
    return value


def _optional(part: Mapping[str, Any], name: str) -> str | None:
    value = part.get(name)
    return None if value is None else str(value)


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
