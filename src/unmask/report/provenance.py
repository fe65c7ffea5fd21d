"""Where figures come from: code, weights, data, versions, machines; and which files hold them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from unmask.analysis.records import Entry, Table, Timing
from unmask.analysis.words import counted
from unmask.store import Store
from unmask.store.experiments import Experiment
from unmask.store.foreign import ForeignRecord

SHORT = 16
"""Digits of a hash that are shown."""
SHOWN = (
    ("commit", "Code"),
    ("engine", "Engine revision"),
    ("weights", "Weights"),
    ("dtype", "Number format"),
    ("data", "Rows"),
    ("task version", "Task versions"),
    ("lm_eval", "lm-eval"),
    ("torch", "torch"),
    ("machine", "Machine"),
    ("host", "Host"),
)
FEW = 4
"""Values that are listed before the rest is counted."""


def provenance_of(table: Table, written: Experiment | None = None) -> Iterator[tuple[str, str]]:
    """What the results share, and what they do not."""
    if written is not None:
        yield "Recipe", f"{written.name}, SHA-256 {written.recipe_sha256[:SHORT]}, planned {written.planned}"
    results: list[Entry | Timing] = [*table.entries, *table.timings]
    for key, name in SHOWN:
        told = _told(_value(result, key) for result in results)
        if told:
            yield name, told


def artifacts_of(store: Store, written: Experiment) -> Iterator[tuple[str, str]]:
    """Folders and files of an experiment, relative to the store."""
    done = sum((store.runs_folder / member.folder / "result.json").exists() for member in written.members)
    yield "Recipe and planned runs", f"experiments/{written.name}/experiment.json"
    yield f"Runs ({done} of {len(written.members)} with a result)", "runs/<task>-<policy>-<id>/"
    yield "Results", "result.json in each run's folder"
    yield "Rows with answers", "attempts/<number>/samples.jsonl in each run's folder"
    yield "Summaries in the older layout", "summary.json in each run's folder"


def foreign_artifacts(name: str, records: Iterable[ForeignRecord]) -> Iterator[tuple[str, str]]:
    """Files of an import."""
    yield f"Imported summaries ({len(list(records))})", f"foreign/{name}/files/"
    yield "What was read from them", f"foreign/{name}/records.json"


def _told(values: Iterable[str | None]) -> str:
    found = Counter(value for value in values if value)
    if len(found) == 1:
        return next(iter(found))
    shown = [f"{value} ({counted(number, 'result')})" for value, number in found.most_common(FEW)]
    return ", ".join(shown) + (f" and {len(found) - FEW} more" if len(found) > FEW else "")


def _value(result: Entry | Timing, key: str) -> str | None:
    value: Any = result.provenance.get(key)
    if value is None:
        return None
    if key == "commit":
        return f"{str(value)[:10]}{' with uncommitted changes' if result.provenance.get('dirty') else ''}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(value[name])}" for name in sorted(value)[:FEW]) + (
            f" and {len(value) - FEW} more" if len(value) > FEW else ""
        )
    return _short(value)


def _short(value: Any) -> str:
    text = str(value)
    is_hash = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:SHORT] if is_hash else text
