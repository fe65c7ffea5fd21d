"""Which weights gave a number: the SHA-256 of a checkpoint's safetensors files, remembered between runs.

A hash is taken again when a file's size or time of change differs; a cache that cannot be read or
written costs time and nothing else.
"""

import hashlib
import json
import os
from pathlib import Path

CHUNK = 1 << 22


def weights_sha256(folder: Path, cache: Path | None = None) -> str:
    """The hash of a single weight file, or that of the list of all files and their hashes."""
    files = sorted(folder.glob("*.safetensors"))
    memory = cache or default_cache()
    known = _read(memory)
    hashes = {file.name: known.get(_key(file)) or file_sha256(file) for file in files}
    found = {_key(file): hashes[file.name] for file in files}
    if not found.items() <= known.items():
        _write(memory, known | found)
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    listing = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    return hashlib.sha256(listing.encode()).hexdigest()


def default_cache() -> Path:
    """Where hashes are remembered."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "unmask" / "weights.json"


def _key(file: Path) -> str:
    status = file.stat()
    return f"{file.resolve()}|{status.st_size}|{status.st_mtime_ns}"


def file_sha256(file: Path) -> str:
    """The hash of one file's content."""
    total = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _read(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(memory: Path, known: dict[str, str]) -> None:
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        beside = memory.with_name(f".{memory.name}.{os.getpid()}")
        beside.write_text(json.dumps(known, indent=1), encoding="utf-8")
        beside.replace(memory)
    except OSError:
        return
