"""Reads files that somebody else may have written: regular ones of bounded size, and JSON and TOML of bounded depth.

Everything that comes from outside passes here: recipes, locks, settings, checkpoints, stores, imports. What is not
read is an OSError, what is not understood a ValueError, each with a few words; callers make a sentence of them.
"""

import errno
import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NoReturn
from unicodedata import category

MIB = 1 << 20
MOST_TEXT = MIB
"""Bytes of what a person writes: a recipe, settings, a template."""
MOST_BYTES = 256 * MIB
"""Bytes of what a program writes: a tokenizer, a result, a trace."""
MOST_LINE = 64 * MIB
"""Bytes of one line of a file that is read line by line."""
CHUNK = MIB
LARGEST_COUNT = 1 << 80
"""Far above the operations of any run; a float still holds it."""
LARGEST_FLOAT = 1e100
"""Far above every measure; sums of its squares are still finite."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
DOTTED = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){64}")
"""A key of very many parts, whose reading would take the square of their number."""


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file; a pipe or a device, which might never answer, is refused without waiting for it."""
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, "no file can have such a name", repr(str(path)))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
        yield stream


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file; one that is larger than `most` bytes is refused, whatever size it claims."""
    with open_plain(path) as stream:
        too_large = OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
        if os.fstat(stream.fileno()).st_size > most:
            raise too_large
        chunks, length = [], 0
        while chunk := stream.read(CHUNK):
            length += len(chunk)
            if length > most:
                raise too_large
            chunks.append(chunk)
    return b"".join(chunks)


def read_plain_text(path: Path, most: int = MOST_TEXT) -> str:
    """The text of a regular file in UTF-8; a byte order mark is passed over."""
    try:
        return read_plain(path, most).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8 text") from None


def plain_lines(stream: BinaryIO, most: int = MOST_LINE) -> Iterator[bytes]:
    """The lines of a file with their ends; a line that is larger than `most` bytes is refused."""
    while line := stream.readline(most):
        if len(line) == most and not line.endswith(b"\n"):
            raise OSError(errno.EFBIG, f"it has a line of more than {most >> 20} MiB")
        yield line


def parse_json(text: str | bytes, finite: bool = True, unique: bool = False) -> Any:
    """A JSON value; with `finite` without NaN and Infinity, with `unique` without a name that stands there twice."""
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant if finite else None,
            object_pairs_hook=_refuse_repeats if unique else None,
        )
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at character {error.pos}" if text else "it is empty") from None


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document."""
    if DOTTED.search(text):
        raise ValueError("it is nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_settings(text: str, is_toml: bool) -> dict[str, Any]:
    """A table of settings that a person wrote, as TOML or as JSON."""
    values = parse_toml(text) if is_toml else parse_json(text, unique=True)
    if not isinstance(values, dict):
        raise ValueError("it holds no table")
    return values


def is_inside(name: str) -> bool:
    """Whether a name that stands in a file is that of a file in the same folder."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == name and "\0" not in name


def is_countable(value: Any) -> bool:
    """Whether all numbers in a value of JSON are of a size with which one can still calculate."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, int) and abs(part) > LARGEST_COUNT:
            return False
        if isinstance(part, float) and abs(part) > LARGEST_FLOAT:
            return False
        if isinstance(part, dict | list | tuple):
            waiting.extend(part.values() if isinstance(part, dict) else part)
    return True


def printable(text: str) -> str:
    """Text for a screen: what could move its cursor or change its colours is shown as a replacement character."""
    return "".join(c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else REPLACEMENT for c in text)


def printable_json(document: Any, indent: int | None = None) -> str:
    """JSON with letters as they are, in which whatever could steer a terminal is written as its number."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{name!r} stands there twice")
    return values
