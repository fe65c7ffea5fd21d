"""Writes docs/result.md: the files of a run and their fields, from the structs and the sentences under their fields.

Run as `python docs/generate_result.py`; a test checks that the page is up to date.
"""

import ast
from pathlib import Path

HERE = Path(__file__).parent
STORE = HERE.parent / "src" / "unmask" / "store"
SOURCES = {
    "result.py": "result.json in a run's folder",
    "run_folder.py": "worker.json and retracted.json in a run's folder",
    "attempt.py": "Files of an attempt: attempt.json, failure.json, interrupted.json, answers.jsonl, "
    "samples.jsonl",
    "stopping.py": "Files of an attempt that may end before its last row: rows.jsonl, stopped.json",
    "worker_file.py": "The file of a worker, workers/NAME.json in the store",
    "computation.py": "computation.json of an attempt",
    "process.py": "Fields of attempt.json and of a worker's file that identify a process",
}
INTRODUCTION = """# The files of a run

This page is made of the source by `python docs/generate_result.py`. `RunFolder.result()` reads a result and
`Attempt.samples()` its samples, as the structs named here. Fields that a version does not know are passed over and
missing ones take their defaults, so older stores stay readable; `schema` rises only when the meaning of a field
changes. A result is an `AccuracyResult` or a `TimingResult`: its field `kind` says `accuracy` or `timing`. A `Number`
is an integer or a float, kept as it was written.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, title in SOURCES.items():
        parts.append(f"## {title}\n")
        tree = ast.parse((STORE / name).read_text(encoding="utf-8"))
        structs = [node for node in tree.body if isinstance(node, ast.ClassDef) and is_struct(node)]
        parts += [section(node) for node in (structs[::-1] if name == "result.py" else structs)]
    return "\n".join(parts)


def is_struct(node: ast.ClassDef) -> bool:
    """Whether a class is a struct with fields."""
    return any(isinstance(statement, ast.AnnAssign) for statement in node.body) and bool(node.bases)


def fields(node: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Name, type and sentence of each field."""
    following = [*node.body[1:], None]
    found = []
    for statement, after in zip(node.body, following, strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            sentence = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
            found.append((statement.target.id, ast.unparse(statement.annotation), sentence))
    return found


def section(node: ast.ClassDef) -> str:
    """A struct as a heading, a sentence and a table."""
    bases = [ast.unparse(base) for base in node.bases]
    inherited = "".join(f" It has the fields of `{base}` too." for base in bases if base != "msgspec.Struct")
    rows = [
        f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` | {text} |" for name, kind, text in fields(node)
    ]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    return f"### {node.name}\n\n{ast.get_docstring(node)}{inherited}\n\n{table}\n"


if __name__ == "__main__":
    (HERE / "result.md").write_text(page(), encoding="utf-8")
