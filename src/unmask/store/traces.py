"""Traces of `unmask probe` by which policies choose their layers: each is kept once in the store, under its hash.

An identity names a trace by the hash of its content, so it is the same run wherever the trace lay when it was planned.
An identity that holds a path instead, as they did before, is left as it is.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.reading import read_plain
from unmask.spec.policy import TRACE_NAME
from unmask.store.files import make_folder, write_atomically


def keep_traces(store: Path, traces: Mapping[str, Path]) -> None:
    """Copy traces, given by their names, into a store; one that was changed meanwhile is left out."""
    for name, source in traces.items():
        file = _file(store, name)
        if _hash(file) != name and _hash(source) == name:
            make_folder(file.parent)
            write_atomically(file, read_plain(source), verbatim=True)


def with_traces(store: Path, policy: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a policy with the paths of the traces that they name."""
    found = {
        key: with_traces(store, value) if isinstance(value, dict) else value for key, value in policy.items()
    }
    name = found.get("calibration")
    if found.get("kind") == "layer_reuse" and isinstance(name, str) and TRACE_NAME.fullmatch(name):
        found["calibration"] = str(_file(store, name))
    return found


def check_traces(store: Path, policy: Mapping[str, Any]) -> None:
    """Refuse a policy whose traces are not those that its run was planned with."""
    for value in policy.values():
        if isinstance(value, dict):
            check_traces(store, value)
    name = policy.get("calibration")
    if isinstance(name, str) and TRACE_NAME.fullmatch(name) and _hash(_file(store, name)) != name:
        raise UnmaskError(f"{_file(store, name)} is not there or was changed; run the recipe again.")


def _file(store: Path, name: str) -> Path:
    return store / "traces" / f"{name.removeprefix('sha256:')}.npz"


def _hash(file: Path) -> str | None:
    try:
        return f"sha256:{hashlib.sha256(read_plain(file)).hexdigest()}"
    except OSError:
        return None
