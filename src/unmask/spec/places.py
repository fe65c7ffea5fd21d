"""Where in a TOML text a message about a recipe points to: messages know keys, people look for lines.

Knows headers and keys, not TOML's grammar. Where a key could stand in several places no line is told: a
wrong one would be worse.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

PATH = re.compile(r"at `\$\.?([^`]*)`")
UNKNOWN = re.compile(r"unknown field `([^`]+)`")
SENTENCE = re.compile(r"(?:^|: )([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)*) is ")
"""Our own sentences begin with the key: `success.control is 'k1', which ...`."""
STEP = re.compile(r"([A-Za-z_][\w-]*)(?:\[(\d+)\])?")
CONFIGURATION = re.compile(r"configuration ([^\s,:]+)[,:]")
HEADER = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?\s*(?:#.*)?$")
SHARED = re.compile(r"(?:^|: )(decode): ")
"""About the settings that all configurations share."""
SINGLE = "configurations"
"""Tables of single configurations, each with its name."""


class Table(NamedTuple):
    """A header and the lines up to the next one."""

    name: str
    start: int
    end: int


def line_of(message: str, text: str) -> int | None:
    """The line that a message is about, or None where it cannot be told."""
    lines = text.splitlines()
    steps = _steps(message)
    if not steps:
        return None
    configuration = CONFIGURATION.search(message)
    if configuration:
        return _in_configuration(configuration[1], steps[-1][0], lines)
    return _at(steps, lines)


def _steps(message: str) -> list[tuple[str, int]]:
    path, unknown, sentence = PATH.search(message), UNKNOWN.search(message), SENTENCE.search(message)
    told = path[1] if path else ""
    if unknown:
        told = f"{told}.{unknown[1]}"
    elif not path and sentence:
        told = sentence[1]
    shared = SHARED.search(message)
    steps = [(shared[1], "")] if shared else []
    return [(name, int(index or 0)) for name, index in [*steps, *STEP.findall(told)]]


def _at(steps: Sequence[tuple[str, int]], lines: list[str]) -> int | None:
    """Follow a path through tables, then through keys, as far as it can be followed."""
    tables = _tables(lines)
    scope = range(tables[0].start if tables else len(lines))
    found: int | None = None
    dotted = ""
    for name, index in steps:
        dotted = f"{dotted}.{name}".lstrip(".")
        block = _block(tables, dotted, index, scope if found is not None else range(len(lines)))
        if block is not None:
            found, scope = block.start, block
            continue
        places = _keys(name, lines, scope)
        if len(places) != 1:
            return found + 1 if found is not None and not places else None
        found, scope = places[0], range(places[0], places[0] + 1)
    return None if found is None else found + 1


def _in_configuration(name: str, key: str, lines: list[str]) -> int | None:
    """A key of the configuration's own table, or the only one outside the tables that are checked by themselves."""
    tables = _tables(lines)
    own: list[int] = []
    foreign: set[int] = set()
    for table in tables:
        if table.name == "decode":
            foreign.update(range(table.start, table.end))
        if table.name.split(".")[0] == SINGLE:
            block = range(table.start, table.end)
            named = re.compile(rf"\s*name\s*=\s*[\"']{re.escape(name)}[\"']\s*(?:#.*)?$")
            (own.extend if any(named.match(lines[one]) for one in block) else foreign.update)(block)
    for scope in (own, [one for one in range(len(lines)) if one not in foreign]):
        places = _keys(key, lines, scope)
        if places:
            return places[0] + 1 if len(places) == 1 else None
    return None


def _tables(lines: list[str]) -> list[Table]:
    starts = [(match[1], number) for number, line in enumerate(lines) if (match := HEADER.match(line))]
    ends = [number for _, number in starts[1:]] + [len(lines)]
    return [Table(name, start, end) for (name, start), end in zip(starts, ends, strict=True)]


def _block(tables: list[Table], dotted: str, index: int, scope: range) -> range | None:
    """The lines of the index-th table of this name with the tables inside it."""
    found = [place for place, table in enumerate(tables) if table.name == dotted and table.start in scope]
    if index >= len(found):
        return None
    last = found[index]
    while last + 1 < len(tables) and tables[last + 1].name.startswith(f"{dotted}."):
        last += 1
    return range(tables[found[index]].start, tables[last].end)


def _keys(name: str, lines: list[str], scope: Sequence[int]) -> list[int]:
    """Lines of a scope that give a key a value, by itself or as an axis."""
    key = re.compile(rf"(?:^|[\s{{,])\"?(?:decode\.)?{re.escape(name)}\"?\s*=")
    return [number for number in scope if key.search(lines[number])]
