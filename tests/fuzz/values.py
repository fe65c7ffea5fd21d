"""Bad values, and good content made bad in one place: what all kinds of input of `make fuzz` are drawn from."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

DEEP = 5_000
TEXTS = [
    "",
    " ",
    "-",
    "--",
    ".",
    "..",
    "*",
    "~",
    "/",
    "x" * 300,
    "x" * 5_000,
    "../../../../etc",
    "../outside/model",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/mem",
    "outside",
    "a/b",
    "a b",
    "a\nb",
    "a\tb",
    "\r",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202e\u0663\N{NO-BREAK SPACE}",
    "\N{FULL BLOCK}" * 40,
    "=1+1",
    "gpu; rm -rf /",
    "x\n#SBATCH --wrap=ls",
    "{k:>2000000000}",
    "{0.__class__}",
    "%n%s",
    "[/]",
    "[link=x]",
    "null",
    "nan",
    "inf",
    "1e308",
    "-1",
    "0",
    "1" + "0" * 30,
    "9" * 5_000,
    "0x10",
    "1_000",
    "1,2,,3",
    "{",
    "[" * DEEP,
    '{"kind": "trim", "keep": {}}',
    '{"kind": "layer_reuse", "k": 2, "k": 3}',
    "layer_reuse:k=2,k=3",
    "layer_reuse:k=" + "9" * 30,
    "os:system",
    "embedded",
    "model",
    "true",
    "hf_" + "a" * 34,
]
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31,
    2**53 + 1,
    2**63,
    10**9,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    5e-324,
]
NOT_FINITE = [float("nan"), float("inf"), float("-inf")]

texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
numbers = st.one_of(st.sampled_from([*NUMBERS, *NOT_FINITE]), st.integers(), st.floats(), st.integers(-4, 40))
plain = st.one_of(texts, numbers, st.none(), st.booleans())
values = st.one_of(
    plain,
    st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a value, itself first."""
    yield above
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*above, key))


def part(value: Any, place: tuple[Any, ...]) -> Any:
    """What stands at a place."""
    for key in place:
        value = value[key]
    return value


def _alike(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same kind, which come further than others."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int | float):
        return numbers
    if isinstance(value, str):
        return st.one_of(texts, st.just(value * 2), st.just(value[:-1]), st.just(f"{value}\n"))
    return values


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A value with one part replaced, taken away, renamed, doubled, wrapped up or added."""
    value = copy.deepcopy(value)
    place = draw(st.sampled_from([place for place in places(value) if place] or [()]))
    if not place:
        return draw(values)
    above, key = part(value, place[:-1]), place[-1]
    how = draw(
        st.sampled_from(["alike"] * 7 + ["replace"] * 4 + ["remove", "rename", "repeat", "wrap", "add"])
    )
    if how == "alike":
        above[key] = draw(_alike(above[key]))
    elif how == "replace":
        above[key] = draw(values)
    elif how == "remove":
        del above[key]
    elif how == "wrap":
        above[key] = draw(st.sampled_from([[above[key]], {"x": above[key]}, [[[above[key]]]]]))
    elif how == "repeat" and isinstance(above[key], list):
        above[key] = above[key] * draw(st.sampled_from([2, 3, 1000]))
    elif how == "rename" and isinstance(above, dict):
        above[draw(texts)] = above.pop(key)
    else:
        inner = above[key] if isinstance(above[key], dict) else above
        if isinstance(inner, dict):
            inner[draw(texts)] = draw(values)
        else:
            inner.insert(0, draw(values))
    return value


@st.composite
def changes(draw: st.DrawFn, value: Any) -> Any:
    """The same once, or two or three times."""
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        value = draw(changed(value))
    return value


JUNK = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b"x = " + b"[" * DEEP + b"]" * DEEP,
    b"a" + b".a" * 50_000 + b" = 1\n",
    b"9" * 5_000,
    b"\x1b[2J",
    b"\n\n\n",
    b'"\\ud800"',
    b"NaN",
    b"1e999",
    b"\r\n",
    b"'''",
    b'"""',
]


@st.composite
def spoiled(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes that were cut short, overwritten, doubled, or have something else among them."""
    at = draw(st.integers(0, len(content)))
    junk = draw(st.one_of(st.sampled_from(JUNK), st.binary(max_size=20)))
    how = draw(st.sampled_from(["cut", "insert", "insert", "overwrite", "flip", "repeat", "only", "without"]))
    if how == "cut":
        return content[:at]
    if how == "insert":
        return content[:at] + junk + content[at:]
    if how == "overwrite":
        return content[:at] + junk + content[at + len(junk) :]
    if how == "flip" and at < len(content):
        return content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
    if how == "repeat":
        return content + content
    if how == "without":
        return content[:at] + content[draw(st.integers(at, len(content))) :]
    return junk


def as_json(value: Any) -> bytes:
    """JSON as Python writes it, which has words for numbers that are not finite; lone surrogates stay escaped."""
    return json.dumps(value).encode()


def as_toml(table: Any) -> bytes:
    """TOML with everything inline; what TOML has no form for is left out."""
    if not isinstance(table, dict):
        return as_json(table)
    return "".join(
        f"{_quoted(str(key))} = {_inline(value)}\n" for key, value in table.items() if value is not None
    ).encode("utf-8", "surrogatepass")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_quoted(str(key))} = {_inline(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class Edit:
    """What is done to one file before a command runs."""

    path: str
    how: str = "write"
    content: bytes = b""

    def __str__(self) -> str:
        shown = f": {self.content[:200]!r}" if self.content else ""
        return f"{self.how} {self.path}{shown}"


SPECIAL = ["pipe", "device", "random", "folder", "missing", "outside", "loop", "empty", "sparse"]


@st.composite
def edits(draw: st.DrawFn, path: str, content: bytes) -> Edit:
    """A file with a change of its values, of its bytes, or one that is no file at all."""
    how = draw(st.sampled_from(["values"] * 12 + ["bytes"] * 5 + ["special"]))
    if how == "special":
        return Edit(path, draw(st.sampled_from(SPECIAL)))
    if not content:
        how = "bytes"
    if how == "values" and path.endswith((".json", ".lock")):
        return Edit(path, content=as_json(draw(changes(json.loads(content)))))
    if how == "values" and path.endswith(".jsonl"):
        lines = content.splitlines()
        if lines:
            number = draw(st.integers(0, len(lines) - 1))
            lines[number] = as_json(draw(changes(json.loads(lines[number]))))
            return Edit(path, content=b"\n".join(lines) + b"\n")
    return Edit(path, content=draw(spoiled(content)))
