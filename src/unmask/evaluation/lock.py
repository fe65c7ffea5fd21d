"""What a run depends on, written down once by its hashes, so that workers without a network use the same.

Knows a checkpoint's files and the rows of loaded tasks. It never sees a token.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.evaluation.fingerprint import file_sha256
from unmask.evaluation.preflight import Loaded, tasks_of
from unmask.spec import build

CHECKPOINT_FILES = ("*.json", "*.jinja", "*.safetensors")


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a lock file."""

    model: str
    """As it was asked for."""
    revision: str | None = None
    """The commit of a hub checkpoint."""
    files: dict[str, str] = {}
    """SHA-256 of every file of the checkpoint."""
    datasets: dict[str, str] = {}
    """The commit of every hub dataset."""
    tasks: dict[str, str] = {}
    """SHA-256 of every task's rows, as the model will be asked them."""

    def check(self, folder: Path, loaded: Loaded) -> None:
        """Refuse a checkpoint or rows that are not the locked ones."""
        for name, digest in self.files.items():
            file = folder / name
            if not file.is_file() or file_sha256(file) != digest:
                raise UnmaskError(f"{file} is not the file that was locked; run `unmask prepare` again.")
        for task, digest in rows_sha256(loaded).items():
            if task not in self.tasks:
                raise UnmaskError(f"{task} is not in the lock; run `unmask prepare` with it.")
            if self.tasks[task] != digest:
                raise UnmaskError(
                    f"The rows of {task} are not those that were locked; run `unmask prepare` again."
                )


def lock_of(
    model: str,
    folder: Path,
    loaded: Loaded,
    revision: str | None = None,
    datasets: dict[str, str] | None = None,
) -> Lock:
    """Lock what lies here now."""
    files = sorted({file for pattern in CHECKPOINT_FILES for file in folder.glob(pattern)})
    return Lock(
        model=model,
        revision=revision,
        files={file.name: file_sha256(file) for file in files},
        datasets=datasets or {},
        tasks=rows_sha256(loaded),
    )


def rows_sha256(loaded: Loaded) -> dict[str, str]:
    """The hash of each task's rows in their order."""
    return {task.task_name: _rows_sha256(task) for task in tasks_of(loaded.objects)}


def _rows_sha256(task: Any) -> str:
    total = hashlib.sha256()
    for row in task.eval_docs:
        total.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return total.hexdigest()


def read_lock(file: Path) -> Lock:
    """Read a lock file."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnmaskError(f"{file}: no such lock; write one with `unmask prepare`.") from None
    except ValueError as error:
        raise UnmaskError(f"{file} cannot be read as a lock ({error}); run `unmask prepare` again.") from None
    return build(Lock, values, str(file))


def as_text(lock: Lock) -> str:
    """A lock file's text."""
    return json.dumps(msgspec.to_builtins(lock), indent=1, sort_keys=True) + "\n"
