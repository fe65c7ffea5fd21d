"""What a result depends on, by its hashes: making a lock, checking one, and remembering hashes of weights.

A lock (`unmask.spec.lock`, data only) holds the SHA-256 of every checkpoint file and of every task's samples.
`prepare` makes one of what lies here or on the hub now; `check_checkpoint` and `check_rows` refuse what is not as it
was locked.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import members_of
from unmask.evaluation.task_data import Loaded, dataset_commits, load_tasks, pin_model, tasks_of
from unmask.evaluation.task_files import check_names
from unmask.model.config import ModelConfig, read_config
from unmask.model.hub import find_checkpoint
from unmask.model.token_files import MERGES_FILE, VOCABULARY_FILE, mask_token_of, tokenizer_file
from unmask.reading import open_plain, parse_json, read_plain
from unmask.spec.lock import Lock, LockedCheckpoint, as_text
from unmask.store.files import write_atomically

CHECKPOINT_FILES = ("*.json", "*.jinja", "*.safetensors")
CHUNK = 1 << 22
SETTLED_SECONDS = 2.0
"""A file that changed this long ago does not change again within one tick of the file system's clock."""


def prepare(
    tasks: list[str],
    model: str,
    output: Path,
    revision: str | None = None,
    data: Path | None = None,
    allow_code: bool = False,
    others: Mapping[str, tuple[str, str | None]] | None = None,
) -> Lock:
    """Fetch checkpoints and the samples of tasks, and write the lock of all to a file.

    `others` are those of single configurations by their names: where each is, and its revision.
    """
    from huggingface_hub import HfApi

    names = check_names(tasks)
    commits = {} if data else dataset_commits(names, HfApi())
    # Programs of a model do not run here; the one that lm-eval's files run when they are imported is their own.
    loaded = load_tasks(names, data, None, allow_code, allow_unsafe_code=allow_code, revisions=commits)
    own = _fetched(model, revision)
    beside = {name: _fetched(*where) for name, where in (others or {}).items()}
    lock = lock_of(own, loaded, commits, beside)
    write_atomically(output, as_text(lock))
    return lock


def _fetched(model: str, revision: str | None) -> LockedCheckpoint:
    from huggingface_hub import HfApi

    commit = pin_model(model, revision, HfApi())
    checkpoint = locked_checkpoint(model, find_checkpoint(model, commit or revision), commit)
    return msgspec.structs.replace(checkpoint, asked_revision=revision)


def locked_checkpoint(model: str, folder: Path, revision: str | None = None) -> LockedCheckpoint:
    """Lock a checkpoint's folder."""
    files = checkpoint_files(folder)
    config = read_config(folder)
    return LockedCheckpoint(
        model=model,
        revision=revision,
        files={file.name: file_sha256(file) for file in files},
        shape=asdict(config.shape),
        block_size=config.block_size,
        family=config.family.name,
        mask_token_id=_mask_token(config, folder),
    )


def lock_of(
    own: LockedCheckpoint,
    loaded: Loaded,
    datasets: dict[str, str] | None = None,
    others: dict[str, LockedCheckpoint] | None = None,
) -> Lock:
    """Lock loaded tasks beside checkpoints."""
    return Lock(
        **{field: getattr(own, field) for field in LockedCheckpoint.__struct_fields__},
        others=others or {},
        datasets=datasets or {},
        members={name: tuple(source.name for source in members_of(name)) for name in loaded.names},
        tasks=rows_sha256(loaded),
        sizes=dict(loaded.sizes),
        versions=_versions(loaded),
        lm_eval=version("lm_eval"),
    )


def _mask_token(config: ModelConfig, folder: Path) -> int | None:
    """The checkpoint's own; None where it names none, so that a recipe must."""
    with suppress(UnmaskError):
        return mask_token_of(config, folder)
    return None


def checkpoint_files(folder: Path) -> list[Path]:
    """Every file of a checkpoint that may change an answer."""
    files = {file for pattern in CHECKPOINT_FILES for file in folder.glob(pattern)}
    if tokenizer_file(folder) == folder / VOCABULARY_FILE:
        files.add(folder / MERGES_FILE)
    return sorted(files)


def _versions(loaded: Loaded) -> dict[str, str]:
    return {task.task_name: str(task.VERSION) for task in tasks_of(loaded.objects)}


def check_checkpoint(checkpoint: LockedCheckpoint, folder: Path) -> None:
    """Refuse a checkpoint that is not the locked one."""
    weights = _weight_hashes(folder)
    for name, digest in checkpoint.files.items():
        file = folder / name
        if not file.is_file() or (weights.get(name) or file_sha256(file)) != digest:
            raise UnmaskError(f"{file} is not the file that was locked; run `unmask prepare` again.")
    for file in checkpoint_files(folder):
        # What lies beside a commit of the hub is of that commit.
        if checkpoint.revision is None and file.name not in checkpoint.files:
            raise UnmaskError(
                f"{file} was not there when the checkpoint was locked; take it away or run `unmask prepare` again."
            )


def check_rows(lock: Lock, loaded: Loaded) -> None:
    """Refuse samples or code of tasks that are not the locked ones."""
    for task, digest in rows_sha256(loaded).items():
        if task not in lock.tasks:
            raise UnmaskError(f"{task} is not in the lock; run `unmask prepare` with it.")
        if lock.tasks[task] != digest:
            raise UnmaskError(
                f"The samples of {task} are not those that were locked; run `unmask prepare` again."
            )
    used = {"lm-eval": version("lm_eval"), **_versions(loaded)}
    for name, locked in {"lm-eval": lock.lm_eval, **lock.versions}.items():
        if locked is not None and used.get(name, locked) != locked:
            raise UnmaskError(
                f"{name} has version {used[name]} but was locked with {locked}; install that one or run "
                "`unmask prepare` again."
            )


def rows_sha256(loaded: Loaded) -> dict[str, str]:
    """The hash of each task's samples in their order."""
    return {task.task_name: _rows_sha256(task) for task in tasks_of(loaded.objects)}


def _rows_sha256(task: Any) -> str:
    total = hashlib.sha256()
    for row in task.eval_docs:
        total.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return total.hexdigest()


def file_sha256(file: Path) -> str:
    """The hash of one file's content."""
    total = hashlib.sha256()
    with open_plain(file) as stream:
        while chunk := stream.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def weights_sha256(folder: Path) -> str:
    """The hash of a single weight file, or that of the list of all files and their hashes."""
    hashes = _weight_hashes(folder)
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    listing = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    return hashlib.sha256(listing.encode()).hexdigest()


def _weight_hashes(folder: Path) -> dict[str, str]:
    """The hashes of a checkpoint's weight files, each taken once on a machine and remembered.

    One is taken again when the file's size, time of change or place on the disk differs; one that changed a moment ago
    might change again without a trace, and is not remembered. A memory that cannot be read or written costs time only.
    """
    files = [file for file in sorted(folder.glob("*.safetensors")) if file.is_file()]
    memory = _hash_memory()
    known = _read_hashes(memory)
    before = {file: _key(file) for file in files}
    hashes = {file: known.get(before[file]) or file_sha256(file) for file in files}
    current = {before[file]: hashes[file] for file in files if _is_settled(file, before[file])}
    if not current.items() <= known.items():
        _write_hashes(memory, _read_hashes(memory) | current)
    return {file.name: digest for file, digest in hashes.items()}


def _hash_memory() -> Path:
    """The file in which hashes are remembered."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "unmask" / "weights.json"


def _key(file: Path) -> str:
    status = file.stat()
    # Whoever writes into a file can set its time of change back, but not that of its status.
    return f"{file.resolve()}|{status.st_size}|{status.st_mtime_ns}|{status.st_ctime_ns}|{status.st_ino}"


def _is_settled(file: Path, key: str) -> bool:
    return _key(file) == key and abs(time.time() - file.stat().st_mtime) > SETTLED_SECONDS


def _read_hashes(memory: Path) -> dict[str, str]:
    try:
        content = parse_json(read_plain(memory))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_hashes(memory: Path, known: dict[str, str]) -> None:
    with suppress(OSError, UnmaskError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(memory, json.dumps(known, indent=1), durable=False)
