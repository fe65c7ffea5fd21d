"""Makes a lock of what lies here now, and refuses what is not as it was locked."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import members_of
from unmask.evaluation.fingerprint import file_sha256
from unmask.evaluation.preflight import Loaded, tasks_of
from unmask.model.config import read_config
from unmask.spec.lock import Lock

CHECKPOINT_FILES = ("*.json", "*.jinja", "*.safetensors")


def check_lock(lock: Lock, folder: Path, loaded: Loaded) -> None:
    """Refuse a checkpoint or rows that are not the locked ones."""
    for name, digest in lock.files.items():
        file = folder / name
        if not file.is_file() or file_sha256(file) != digest:
            raise UnmaskError(f"{file} is not the file that was locked; run `unmask prepare` again.")
    for task, digest in rows_sha256(loaded).items():
        if task not in lock.tasks:
            raise UnmaskError(f"{task} is not in the lock; run `unmask prepare` with it.")
        if lock.tasks[task] != digest:
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
    config = read_config(folder)
    return Lock(
        model=model,
        revision=revision,
        files={file.name: file_sha256(file) for file in files},
        shape=asdict(config.shape),
        block_size=config.block_size,
        datasets=datasets or {},
        members={name: tuple(source.name for source in members_of(name)) for name in loaded.names},
        tasks=rows_sha256(loaded),
        sizes=dict(loaded.sizes),
        versions={task.task_name: str(task.VERSION) for task in tasks_of(loaded.objects)},
        lm_eval=version("lm_eval"),
    )


def rows_sha256(loaded: Loaded) -> dict[str, str]:
    """The hash of each task's rows in their order."""
    return {task.task_name: _rows_sha256(task) for task in tasks_of(loaded.objects)}


def _rows_sha256(task: Any) -> str:
    total = hashlib.sha256()
    for row in task.eval_docs:
        total.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return total.hexdigest()
