"""Puts tables into a page, each between `<!-- table: NAME -->` and `<!-- end -->`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def put_into_page(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of a table; the page must have exactly one place for it."""
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, places = pattern.subn(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], page.read_text())
    if places != 1:
        raise SystemExit(f"{page} has {places} places for the table {name}")
    page.write_text(text)


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table."""
    head = list(headings)
    return [_row(head), "|" + "---|" * len(head), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
