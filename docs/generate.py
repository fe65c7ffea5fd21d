"""Writes the pages that look things up: commands.md, recipe.md, result.md and api.md, from the source.

Run as `python docs/generate.py`; a test checks that the pages are up to date and that nothing in them lacks a sentence.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import click

from unmask.cli.group import GROUPS, app
from unmask.spec import family as spec_family
from unmask.spec import policy, rule
from unmask.spec import recipe as spec_recipe

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "unmask"
MADE = "This page is made of the source by `python docs/generate.py`.\n"

WIDEST_CALL = 100
"""Characters of a call that stays on one line."""
RECIPE_PARTS = {
    "Recipe": ("recipe.py", "The top of the file"),
    "ModelSpec": ("recipe.py", "`[model]`, also of a grid or a configuration"),
    "DecodeSpec": ("decode.py", "`[decode]`, also of a grid or a configuration"),
    "EvaluationSpec": ("conduct.py", "`[evaluation]`"),
    "TaskSpec": ("recipe.py", "`[[tasks]]`"),
    "GridSpec": ("recipe.py", "`[[grid]]`"),
    "ConfigurationSpec": ("recipe.py", "`[[configurations]]`"),
    "TimingSpec": ("conduct.py", "`[[timing]]`"),
    "SuccessSpec": ("recipe.py", "`[success]`"),
    "Bounds": ("recipe.py", "`confirm` and `reject` of `[success]`"),
    "UntilDecidedSpec": ("conduct.py", "`[until_decided]`"),
    "ResourcesSpec": ("resources.py", "`[resources]`"),
}
RESULT_FILES = {
    "result.py": "result.json in a run's folder",
    "run_folder.py": "worker.json and retracted.json in a run's folder",
    "attempt.py": "Files of an attempt: attempt.json, failure.json, interrupted.json, answers.jsonl, "
    "samples.jsonl",
    "stopping.py": "Files of an attempt that may end before its last row: rows.jsonl, stopped.json",
    "worker_file.py": "The file of a worker, workers/NAME.json in the store",
    "computation.py": "computation.json of an attempt",
    "process.py": "Fields of attempt.json and of a worker's file that identify a process",
}
API_FILES = {
    "unmask": {
        "load": "loading.py",
        "Engine": "engine/engine.py",
        "DecodeSpec": "spec/decode.py",
        "Request": "engine/prompt.py",
        "Generation": "engine/events.py",
        "StepEvent": "engine/events.py",
        "Finished": "engine/events.py",
        "ScoreRequest": "engine/score.py",
        "Score": "engine/score.py",
        "Scores": "engine/score.py",
        "Ledger": "cost/work.py",
        "UnmaskError": "errors.py",
    },
    "unmask.lab": {
        name: f"lab/{file}.py"
        for file, names in {
            "recipes": ("new", "demo", "prepare", "Message"),
            "planning": ("plan", "Plan", "SweepRun"),
            "executing": ("run", "running", "SweepOutcome", "PoolOpened", "Waiting"),
            "runs": ("status", "logs", "cancel", "retract", "remove", "ExperimentStatus", "RunStatus"),
            "outcomes": (
                *("results", "check", "compare", "report", "export", "import_summaries"),
                *("Checked", "ComparedRuns", "WrittenReport", "Exported"),
            ),
        }.items()
        for name in names
    },
}


def commands() -> str:
    """Every verb with its help, its options and its examples."""
    parts = [
        f"# Commands\n\n{MADE}Every command prints the same with `--help`. Exit codes: 0 done, 1 a difference or a "
        "finding, 2 the input does not allow it, 70 a defect of Unmask, 130 interrupted.\n"
    ]
    context = click.Context(app, info_name="unmask")
    for group, verbs in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in verbs:
            command = app.get_command(context, name)
            assert command is not None
            parts.append(verb(name, command))
    return "\n".join(parts)


def verb(name: str, command: click.Command) -> str:
    """One verb: what it does, its options, its examples."""
    text, _, examples = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Examples:\n")
    rows = ["| option | meaning |", "|---|---|"]
    context = click.Context(command, info_name=f"unmask {name}")
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            rows.append(f"| `{cell(record[0])}` | {cell(record[1])} |")
    arguments = " ".join(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")
    usage = f"`unmask {name} {arguments}`".replace(" `", "`")
    shown = inspect.cleandoc("\n" + examples).strip()
    listed = "\n".join(f"$ {line.strip()}" for line in shown.splitlines())
    table = "\n".join(rows) + "\n\n" if len(rows) > 2 else ""
    return f"### unmask {name}\n\n{usage}\n\n{text.strip()}\n\n{table}```console\n{listed}\n```\n"


def cell(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def recipe() -> str:
    """Every field of a recipe, every policy, every unmasking rule and every family."""
    parts = [
        f"# Fields of a recipe\n\n{MADE}[Experiments](experiments.md) shows a whole recipe and explains it. A field "
        "that is not set leaves the choice to what its meaning names.\n"
    ]
    for name, (file, title) in RECIPE_PARTS.items():
        parts.append(settings(f"## {title}", structs(SOURCE / "spec" / file)[name]))
    for title, file, page in (
        ("Policies", "policy.py", "[Policies](policies.md) explains each of them."),
        ("Unmasking rules", "rule.py", "[The decoder](decoder.md#unmasking-rules) explains each of them."),
    ):
        parts.append(f"## {title}\n\n{page}\n")
        found = structs(SOURCE / "spec" / file)
        for node in found.values():
            kind = next((word.value.value for word in node.keywords if word.arg == "tag"), None)  # type: ignore[attr-defined]
            if kind:
                parts.append(
                    settings(
                        f"### {title.removesuffix('ies') + 'y' if title == 'Policies' else 'Rule'} `{kind}`",
                        node,
                        found,
                    )
                )
    return "\n".join(parts)


def settings(title: str, node: ast.ClassDef, others: "dict[str, ast.ClassDef] | None" = None) -> str:
    """A part of a recipe: its sentence, and each field with type, default and meaning."""
    bases = [ast.unparse(base) for base in node.bases]
    inherited = [row for base in bases for row in fields((others or {}).get(base))]
    rows = [
        f"| `{name}` | {cell(in_words(kind))} | {default} | {cell(text)} |"
        for name, kind, default, text in [*inherited, *fields(node)]
    ]
    table = (
        ["| field | type | default | meaning |", "|---|---|---|---|", *rows]
        if rows
        else ["It has no fields."]
    )
    return f"{title}\n\n{ast.get_docstring(node)}\n\n" + "\n".join(table) + "\n"


WORDS = {
    "Positive": "whole number from 1",
    "Count": "whole number from 0",
    "TokenId": "whole number from 0",
    "AnyRuleSpec": "rule",
    "dict[str, Any]": "table",
    "dict[str, tuple[Any, ...]]": "lists by names",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
}
"""Types as somebody says them who writes a recipe."""


def in_words(kind: str) -> str:
    """A type in the words of those who write recipes; one of several words is listed."""
    kind = kind.removesuffix(" | None")
    if kind in WORDS:
        return WORDS[kind]
    if kind.startswith("Annotated["):
        return in_words(kind.removeprefix("Annotated[").split(",")[0])
    many = re.fullmatch(r"tuple\[(.+), \.\.\.\]", kind)
    if many:
        return f"list: {in_words(many[1])}"
    if kind.endswith("Spec") or kind == "Bounds":
        return "table"
    if " | " in kind:
        return " or ".join(in_words(part) for part in kind.split(" | "))
    words = allowed_words(kind)
    return ", ".join(f"`{word}`" for word in words) if words else kind


def allowed_words(kind: str) -> tuple[str, ...]:
    """The words of a type that allows some words only, written out or by its name; otherwise none."""
    if kind.startswith("Literal"):
        return tuple(re.findall(r"'([^']+)'", kind))
    homes = (spec_recipe, spec_family, policy, rule)
    return next((get_args(getattr(home, kind)) for home in homes if hasattr(home, kind)), ())


def result() -> str:
    """The files of a run and their fields."""
    parts = [
        f"""# The files of a run

{MADE}`RunFolder.result()` reads a result and
`Attempt.samples()` its samples, as the structs named here. Fields that a version does not know are passed over and
missing ones take their defaults, so older stores stay readable; `schema` rises only when the meaning of a field
changes. A result is an `AccuracyResult` or a `TimingResult`: its field `kind` says `accuracy` or `timing`. A `Number`
is an integer or a float, kept as it was written.
"""
    ]
    for name, title in RESULT_FILES.items():
        parts.append(f"## {title}\n")
        nodes = [node for node in structs(SOURCE / "store" / name).values() if fields(node) and node.bases]
        parts += [record(node) for node in (nodes[::-1] if name == "result.py" else nodes)]
    return "\n".join(parts)


def record(node: ast.ClassDef) -> str:
    """A struct as a heading, a sentence and a table."""
    bases = [ast.unparse(base) for base in node.bases]
    inherited = "".join(f" It has the fields of `{base}` too." for base in bases if base != "msgspec.Struct")
    rows = [f"| `{name}` | `{cell(kind)}` | {text} |" for name, kind, _, text in fields(node)]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    return f"### {node.name}\n\n{ast.get_docstring(node)}{inherited}\n\n{table}\n"


def api() -> str:
    """What a program may call: functions with their signatures, classes with their fields and methods."""
    parts = [f"# Python\n\n{MADE}`import unmask` and `unmask.lab` need no torch; `unmask.load` does.\n"]
    for module, names in API_FILES.items():
        parts.append(f"## {module}\n")
        for name, file in names.items():
            tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
            node = next(node for node in tree.body if isinstance(node, Named) and node.name == name)
            parts.append(documented(node))
    return "\n".join(parts)


Named = ast.FunctionDef | ast.ClassDef


def documented(node: Named) -> str:
    """A function, or a class with its public fields and methods."""
    if isinstance(node, ast.FunctionDef):
        return f"### {node.name}\n\n{called(node)}\n"
    rows = [
        f"| `{name}` | `{cell(kind)}` | {cell(text)} |"
        for name, kind, _, text in fields(node)
        if not name.startswith("_")
    ]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) + "\n\n" if rows else ""
    methods = [
        called(method)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
    ]
    return f"### {node.name}\n\n{ast.get_docstring(node)}\n\n{table}" + "\n".join(methods)


def called(node: ast.FunctionDef) -> str:
    """How a function is called, and what it says of itself."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    result = f" -> {kind_of(node.returns)}" if node.returns else ""
    arguments = argument_list(node.args)
    line = f"def {node.name}({', '.join(arguments)}){result}: ..."
    if any(ast.unparse(mark) == "property" for mark in node.decorator_list):
        line = f"{node.name}: {result.removeprefix(' -> ')}"
    elif len(line) > WIDEST_CALL:
        line = "\n".join(
            [f"def {node.name}(", *[f"    {argument}," for argument in arguments], f"){result}: ..."]
        )
    return f"```python\n{line}\n```\n\n{text}\n"


def argument_list(given: ast.arguments) -> list[str]:
    """The arguments as they are written, without `self`."""
    nothing: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    pairs = [*zip(given.args, [*nothing, *given.defaults], strict=True)]
    words = [argument(each, default) for each, default in pairs if each.arg != "self"]
    if given.vararg:
        words.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        words.append("*")
    words += [argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return words + ([f"**{ast.unparse(given.kwarg)}"] if given.kwarg else [])


def argument(given: ast.arg, default: ast.expr | None) -> str:
    """One argument with its type and default."""
    value = ast.unparse(default).replace("'", '"') if default else None
    return f"{given.arg}: {kind_of(given.annotation)}" + (f" = {value}" if value else "")


def kind_of(annotation: ast.expr | None) -> str:
    """A type without the quotes that a later class needs."""
    return ast.unparse(annotation).replace("'", "") if annotation else "Any"


def structs(file: Path) -> dict[str, ast.ClassDef]:
    """The classes of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef | None) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and sentence of each field."""
    body = node.body if node else []
    for statement, after in zip(body, [*body[1:], None], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            kind = ast.unparse(statement.annotation)
            kind = kind if "Literal" in kind else kind.replace("'", "")
            if kind.startswith("ClassVar"):
                continue
            text = after.value if isinstance(after, ast.Expr) else None
            sentence = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
            yield statement.target.id, kind, default_of(statement.value), " ".join(sentence.split())


def default_of(value: ast.expr | None) -> str:
    """A default as a table shows it."""
    if value is None:
        return "required"
    text = ast.unparse(value)
    made = re.fullmatch(r"msgspec\.field\(default_factory=(?:lambda: )?(.+)\)", text)
    text = made[1] if made else text
    if text.endswith("Spec()"):
        return "as below"
    if text.startswith("("):
        text = f"[{text[1:-1].rstrip(',')}]"
    words = {"None": "not set", "dict": "`{}`", "True": "`true`", "False": "`false`"}
    return words.get(text) or "`{}`".format(text.replace("'", '"'))


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "recipe.md": recipe,
    "result.md": result,
    "api.md": api,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
