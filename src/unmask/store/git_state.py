"""Which version of the code ran: the commit of the checkout a folder of code belongs to, and what differs from it.

Only the code's own folder counts: notes, recipes and results that lie in the same checkout and change during a
sweep do not make its runs differ. Code that was installed without its checkout has no commit.
"""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

SECONDS = 30.0
UNKNOWN = {"commit": None, "dirty": None, "diff_sha256": None}


def git_state(code: Path) -> dict[str, Any]:
    """Commit, whether the code differs from it, and the hash of the difference (None where there is none)."""
    tracked = _git(code, "ls-files", "--error-unmatch", "__init__.py")
    commit = _git(code, "rev-parse", "HEAD")
    if tracked is None or commit is None:
        return dict(UNKNOWN)
    difference = _git(code, "diff", "HEAD", "--no-ext-diff", "--no-color", "--binary", "--", ".")
    added = _git(code, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    if difference is None or added is None:
        return {**UNKNOWN, "commit": commit.decode().strip()}
    names = [name for name in added.decode(errors="surrogateescape").split("\0") if name]
    dirty = bool(difference or names)
    return {
        "commit": commit.decode().strip(),
        "dirty": dirty,
        "diff_sha256": _digest(code, difference, names) if dirty else None,
    }


def _digest(code: Path, difference: bytes, names: list[str]) -> str:
    """The hash of `git diff HEAD`, followed by the files that git does not know yet."""
    total = hashlib.sha256(difference)
    for name in sorted(names):
        total.update(name.encode(errors="surrogateescape") + b"\0")
        try:
            total.update((code / name).read_bytes())
        except OSError:
            continue
    return total.hexdigest()


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git says, or None where it is missing, silent or refuses."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        told = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout if told.returncode == 0 else None
