"""Hides secrets in a text: one rule for everything that Unmask writes.

A secret is the value of an environment variable with a secret's name, whatever stands behind such a name, the user
part of an address, or a token whose shape tells whose it is. The writers of `files.py` and the stream of a worker's
log call it; answers and samples are the words of a model and of a benchmark and stay as they are.

As a program it copies stdin to stdout without secrets: it knows only the standard library and runs isolated.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

HIDDEN = "(hidden)"
SHORTEST = 6
"""Characters of a value that is looked for in texts; a shorter one may be an ordinary word."""
_ENDS = "key|token|secret|password|passwd"
_OPEN = r"mask|stop|eos|bos|pad|unk|sep|cls|special|first|last|next|new|per|a|each|start|end"
_QUALIFIED = r"api|access|account|auth|encryption|master|private|secret|shared|signing|ssh"
SECRET_NAME = re.compile(rf"(?i)^[\w.\-]*(?:{_ENDS})$|credential")
"""Names of environment variables and options that hold secrets."""
NOT_SECRET = re.compile(rf"(?i)(?:^|[_\-])(?:{_OPEN})[_\-]token$|token[_\-]id")
# In a text a small `key` is an ordinary word, as in `sorted(rows, key=size)`: it needs a word before it.
_IN_TEXT = (
    r"[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)|(?>[A-Za-z0-9_\-]*(?i:credential)[A-Za-z0-9_\-]*)"
    rf"|[A-Za-z0-9_\-]*(?i:token|secret|password|passwd)|[A-Za-z0-9_\-]*(?i:{_QUALIFIED})[_\-]?(?i:key)"
)
NAMED = re.compile(
    rf"(?<![A-Za-z0-9_\-])(?P<name>{_IN_TEXT})"
    r"(?P<sign>\\?[\"']\s*:\s*b?\\?[\"']|=\\?[\"']?|\s+=\s+\\?[\"']|(?<=[A-Z])\s+=\s+"
    # Behind a colon a word of prose may follow, as in `a token: set HF_TOKEN`; a secret is more than small letters.
    r"|:\s*\\?[\"']?(?!//)(?=[^\s\"'\\,;]*[^a-zA-Z\s\"'\\,;.`(]))"
    # A reference such as $HF_TOKEN or $(cat file) is no secret, and neither is what was hidden before.
    r"(?![$`\[{(<*])(?:(?<=[\"'])[^\"'\\\n<]{3,}|[^\s\"'\\,;&)\]}<]{3,})"
)
SHAPES = re.compile(
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA)[A-Za-z0-9_\-]{8,}"  # tokens that say whose they are
    r"|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]+)?|\bAIza[A-Za-z0-9_\-]{30,}"
    r"|(?<=://)[^/\s\"'\\<>]+(?=@)"  # the user part of an address
    r"|(?<=[Bb]earer )[^\s\"'\\,;]{6,}|(?<=uthorization: [Bb]asic )[^\s\"'\\,;]{6,}"
)
OPTION = re.compile(r"(?i)(?P<option>(?:^|\s)--?[\w\-]+\s+)(?P<value>[^\s\"'\\\-][^\s\"'\\]*)")


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is a secret."""
    return bool(SECRET_NAME.search(name)) and not NOT_SECRET.search(name)


def redacted(text: str) -> str:
    """The text without secrets."""
    for value in _values(os.environ):
        if value in text:
            text = text.replace(value, HIDDEN)
    text = SHAPES.sub(HIDDEN, text)
    text = NAMED.sub(_without_value, text)
    return OPTION.sub(_without_argument, text)


def redacted_bytes(content: bytes) -> bytes:
    """The same of what is about to be written; what is no text is left as it is."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    clean = redacted(text)
    return content if clean == text else clean.encode()


def redacted_arguments(arguments: Iterable[str]) -> list[str]:
    """Command-line arguments; the value of an option with a secret's name goes too."""
    kept: list[str] = []
    hide_next = False
    for argument in arguments:
        name, sign, _ = argument.partition("=")
        if hide_next:
            kept.append(HIDDEN)
        elif sign and is_secret_name(name.lstrip("-")):
            kept.append(f"{name}={HIDDEN}")
        else:
            kept.append(redacted(argument))
        hide_next = not hide_next and argument.startswith("-") and is_secret_name(argument.lstrip("-"))
    return kept


def public_environment(environment: Mapping[str, str], wanted: Iterable[str] = ()) -> dict[str, str]:
    """The variables that hold no secret, and those that are asked for by name."""
    named = set(wanted)
    return {
        name: value
        for name, value in environment.items()
        if name in named or not (is_secret_name(name) or redacted(value) != value)
    }


def _values(environment: Mapping[str, str]) -> list[str]:
    """Values of variables with a secret's name, in every spelling, the longest first."""
    spellings: set[str] = set()
    for name, value in environment.items():
        if is_secret_name(name):
            # A log is read line by line.
            for part in (value, *value.splitlines()):
                # Digits alone would break the numbers of a record.
                if len(part) >= SHORTEST and re.search(r"[^\W\d]", part):
                    spellings |= _spellings(part)
    return sorted(spellings, key=len, reverse=True)


@cache
def _spellings(value: str) -> frozenset[str]:
    """A value as texts, JSON and Python's tracebacks spell it, and as they spell each other."""
    once = {value, repr(os.fsencode(value))[2:-1]}
    once |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for spelled in (repr(value)[1:-1], ascii(value)[1:-1]):
        # Which quotes are escaped depends on the rest of a longer text.
        plain = spelled.replace("\\'", "'")
        once |= {plain, plain.replace("'", "\\'")}
    return frozenset(once | {how(spelled)[1:-1] for spelled in once for how in (json.dumps, repr, ascii)})


def _without_value(match: "re.Match[str]") -> str:
    if NOT_SECRET.search(match["name"]):
        return match[0]
    return f"{match['name']}{match['sign']}{HIDDEN}"


def _without_argument(match: "re.Match[str]") -> str:
    name = match["option"].strip().lstrip("-")
    return f"{match['option']}{HIDDEN}" if is_secret_name(name) else match[0]


# The stream of a worker's output.


def clean_copy(log: BinaryIO) -> "subprocess.Popen[bytes]":
    """A process that copies what is written to its stdin to a file, without secrets, until the last writer has ended.

    It outlives a worker that is killed, so that the worker's last words are kept.
    """
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _copy(source: int = 0, target: int = 1, largest: int = 1 << 16) -> None:
    """Line by line; a disk that is full must not stop whoever writes to us."""
    rest = b""
    while data := os.read(source, largest):
        *lines, rest = re.split(rb"(?<=[\r\n])", rest + data)
        if len(rest) > largest:
            cut = _place_to_cut(rest, largest // 16)
            lines, rest = [*lines, rest[:cut]], rest[cut:]
        _write(target, lines)
    _write(target, [rest])


def _place_to_cut(line: bytes, kept: int) -> int:
    """Where a line that does not end can be cut in two without cutting a secret, which then would not be known."""
    whole = _clean(line)
    for cut in range(len(line) - kept, len(line) // 2, -kept):
        if _clean(line[:cut]) + _clean(line[cut:]) == whole:
            return cut
    return len(line)


def _clean(line: bytes) -> bytes:
    return redacted(line.decode(errors="replace")).encode()


def _write(target: int, lines: Iterable[bytes]) -> None:
    content = b"".join(map(_clean, lines))
    with suppress(OSError):
        while content:
            content = content[os.write(target, content) :]


if __name__ == "__main__":
    _copy()
