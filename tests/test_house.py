"""How the source is laid out: rooms found by name, functions that fit on a screen, one word for one thing."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "src").rglob("*.py")}
MOST_FILES, LONGEST_FILE, LONGEST_FUNCTION = 231, 450, 60
VAGUE, LONG_ENOUGH_TO_NAME = {"told", "found", "one", "asked"}, 10
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function, int]]:
    """Every function with its place and its length in lines."""
    for file, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node, length


def test_there_are_rooms_not_cupboards() -> None:
    assert len(SOURCES) <= MOST_FILES


def test_a_file_reads_from_top_to_bottom() -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_fit_on_a_screen() -> None:
    assert {place: length for place, _, length in functions() if length > LONGEST_FUNCTION} == {}


def test_a_class_name_stands_for_one_thing() -> None:
    names = Counter(
        node.name for tree in SOURCES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_names_in_longer_functions_say_what_they_hold() -> None:
    vague = {
        place: sorted(names)
        for place, node, length in functions()
        if length > LONG_ENOUGH_TO_NAME and (names := VAGUE & set(names_bound_in(node)))
    }
    assert vague == {}


def names_bound_in(function: Function) -> Iterator[str]:
    """Names that a function assigns, loops over, or takes as parameters."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
