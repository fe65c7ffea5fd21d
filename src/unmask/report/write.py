"""Both files of a report, written whole or not at all."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from unmask.report.document import Document
from unmask.report.markdown import as_markdown
from unmask.report.page import as_page
from unmask.store import Store, write_atomically
from unmask.store.files import make_folder

LONGEST = 80
"""Letters of a folder's name."""


def folder_of(store: Store, experiments: Sequence[str], imports: Sequence[str]) -> Path:
    """Where the report of some experiments and imports lies."""
    name = "+".join([*experiments, *(f"foreign-{one}" for one in imports)])
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return store.root / "reports" / name


def write_report(document: Document, folder: Path) -> tuple[Path, Path]:
    """Write results.md and report.html; both are made before either is written."""
    pages = {"results.md": as_markdown(document), "report.html": as_page(document)}
    make_folder(folder)
    for name, text in pages.items():
        # A model may write half of a pair of surrogates; no file can hold that.
        write_atomically(folder / name, text.encode("utf-8", errors="replace"))
    return folder / "results.md", folder / "report.html"
