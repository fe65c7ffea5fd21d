"""Where in a TOML text a validation message points to: msgspec knows keys, people look for lines."""

import re

PATH = re.compile(r"at `\$\.?([^`]*)`")
UNKNOWN = re.compile(r"unknown field `([^`]+)`")
STEP = re.compile(r"([A-Za-z_][\w-]*)(?:\[(\d+)\])?")


def line_of(message: str, text: str) -> int | None:
    """The line that a message of msgspec is about, or None where it cannot be told."""
    path, unknown = PATH.search(message), UNKNOWN.search(message)
    steps = STEP.findall(path[1]) if path else []
    if unknown:
        steps = [*steps, (unknown[1], "")]
    if not steps:
        return None
    lines = text.splitlines()
    start, end = 0, len(lines)
    for name, index in steps[:-1]:
        start, end = _table(lines, name, int(index or 0), start, end)
    name, index = steps[-1]
    header, after = _table(lines, name, int(index or 0), start, end)
    if (header, after) != (start, end):
        return header + 1
    key = re.compile(rf"(?:^|[\s{{,])\"?{re.escape(name)}\"?\s*=")
    return next((number + 1 for number in range(start, end) if key.search(lines[number])), None)


def _table(lines: list[str], name: str, index: int, start: int, end: int) -> tuple[int, int]:
    """The lines of the index-th table with this name; the given ones where there is no such header."""
    header = re.compile(rf"\s*\[\[?\s*(?:[\w.-]+\.)?{re.escape(name)}\s*\]\]?\s*(?:#.*)?$")
    found = [number for number in range(start, end) if header.match(lines[number])]
    if index >= len(found):
        return start, end
    begin = found[index]
    prefix = re.compile(rf"\s*\[\[?\s*(?:[\w.-]+\.)?{re.escape(name)}\.")
    for number in range(begin + 1, end):
        if lines[number].lstrip().startswith("[") and not prefix.match(lines[number]):
            return begin, number
    return begin, end
