"""The store: a folder with a folder for every run. What is there is found on disk; nothing is kept in memory.

Knows how runs are named and found. An id is a hash of what identifies a result, never of where it is computed.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.store.files import canonical, make_folder, publish_once, read_json, sync_folder
from unmask.store.redaction import redacted_bytes
from unmask.store.run_folder import FOLDER, RunFolder, WorkerSettings
from unmask.store.worker_file import TWINS

DEFAULT = "results"
VARIABLE = "UNMASK_STORE"
ID_DIGITS = 16
LONGEST_NAME = 80
SHOWN = 5


def run_id(identity: Mapping[str, Any]) -> str:
    """The id of the run with this identity."""
    try:
        return hashlib.sha256(canonical(identity)).hexdigest()[:ID_DIGITS]
    except (TypeError, ValueError) as error:
        raise UnmaskError(f"The identity of a run must be plain, finite JSON: {error}.") from None


def folder_name(identity: Mapping[str, Any]) -> str:
    """The name of a run's folder: task, policy and id."""
    task = identity.get("task")
    name = task.get("name") if isinstance(task, Mapping) else task
    policy = identity.get("policy")
    kind = "timing" if identity.get("kind") == "timing" else (policy or {}).get("kind", "full")
    return f"{_plain(str(name))}-{_plain(str(kind))}-{run_id(identity)}"


class Store:
    """All runs, experiments and imported summaries below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def at(cls, path: Path | str | None = None) -> "Store":
        """The store in a folder, in that of UNMASK_STORE, or in `results` here; it need not exist yet."""
        root = Path(path or os.environ.get(VARIABLE) or DEFAULT).expanduser()
        if root.exists() and not root.is_dir():
            raise UnmaskError(f"{root} is a file; a store is a folder, so choose another --store.")
        return cls(root)

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    @property
    def runs_folder(self) -> Path:
        """Where the runs are."""
        return self.root / "runs"

    def run(
        self,
        identity: Mapping[str, Any],
        worker: WorkerSettings | None = None,
        twin_of: RunFolder | None = None,
    ) -> RunFolder:
        """The run with this identity, made if it is new; settings of the worker are brought up to date."""
        run = self.find(identity, twin_of)
        if not run.folder.is_dir():
            make_folder(run.folder)
            sync_folder(run.folder.parent)
        frozen = {"schema": 1, "id": run.id, "identity": identity}
        if redacted_bytes(canonical(frozen)) != canonical(frozen):
            raise UnmaskError(
                f"The settings of {run.name} hold a secret, or the value of an environment variable with a secret's "
                "name; take it out of the recipe."
            )
        if not publish_once(run.folder / "run.json", frozen):
            _check_same(run, identity)
        if worker is not None:
            run.set_worker(worker)
        return run

    def find(self, identity: Mapping[str, Any], twin_of: RunFolder | None = None) -> RunFolder:
        """The run with this identity, whether or not it exists; nothing is written."""
        place = self.runs_folder if twin_of is None else twin_of.folder / TWINS
        return RunFolder(place / folder_name(identity))

    def is_done(self, folder: str) -> bool:
        """Whether the run in a folder of this name has a result."""
        return (self.runs_folder / folder / "result.json").exists()

    def open(self, name: str | Path) -> RunFolder:
        """The run with this id, folder or name, or the only one that begins so."""
        folder = Path(name)
        if len(folder.parts) > 1 and (folder / "run.json").exists():
            return RunFolder(folder.resolve())
        wanted = folder.name
        places = {run.name: run for run in (*self.runs(), *self.twins())}
        names = list(places)
        exact = [known for known in names if wanted in (known, known.rpartition("-")[2])]
        matches = exact or [known for known in names if wanted and _begins(known, wanted)]
        if not matches:
            raise UnmaskError(f"There is no run {str(name)!r} in {self.root}; `unmask status` lists them.")
        if len(matches) > 1:
            more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
            raise UnmaskError(
                f"{wanted!r} could be {', '.join(matches[:SHOWN])}{more}; give more of the name or the id."
            )
        return places[matches[0]]

    def names(self) -> list[str]:
        """Names of all run folders, sorted."""
        try:
            with os.scandir(self.runs_folder) as entries:
                return sorted(
                    entry.name for entry in entries if FOLDER.fullmatch(entry.name) and entry.is_dir()
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UnmaskError(f"{self.runs_folder} cannot be read ({error.strerror}).") from None

    def runs(self) -> Iterator[RunFolder]:
        """All runs by name."""
        return (RunFolder(self.runs_folder / name) for name in self.names())

    def twins(self) -> Iterator[RunFolder]:
        """The twins of all runs, which lie in the folders of these."""
        return (twin for run in self.runs() for twin in run.twins())


def _check_same(run: RunFolder, identity: Mapping[str, Any]) -> None:
    held = read_json(run.folder / "run.json", "delete that file and run again: it is written anew").get(
        "identity"
    )
    if canonical(held) != canonical(identity):
        raise UnmaskError(
            f"{run.folder / 'run.json'} holds another identity than the run that belongs there; it was edited or "
            f"copied, so remove the run with `unmask rm {run.id}` and run again."
        )


def _begins(name: str, wanted: str) -> bool:
    return name.startswith(wanted) or name.rpartition("-")[2].startswith(wanted)


def _plain(text: str) -> str:
    """Text that is safe as part of a folder's name on every system."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("._")[:LONGEST_NAME] or "unnamed"
