"""The kinds of input: what a case of each kind is drawn from. Options and files are looked up, never listed by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from hypothesis import strategies as st
from values import TEXTS, Edit, as_json, as_toml, changes, edits, numbers, spoiled, texts, values
from world import POLICY, RECIPE, SUMMARY, Case, files_of

from unmask.cli.group import VERBS, app

ENDLESS = {"watch", "open_it"}
"""Options that do not end, or open a window."""
SERVES = {"play", "gpu-check"}
"""Verbs that do not end or take minutes; what they take from outside is tested in tests/play and test_gpu_check.py."""
HEAVY = {
    "demo": 1,
    "eval": 1,
    "prepare": 1,
    "run": 3,
    "run-one": 2,
    "conformance": 2,
    "doctor": 1,
    "report": 2,
}
"""How often verbs are drawn that load benchmarks or start processes; the others ten times."""
USUAL = 10
MODELS = ["families/autoregressive", "families/dream", "families/llada", "families/sdar"]
FULL, TRIM = "unmask_arith-full-7223", "unmask_arith-trim-6e95"
GOOD: dict[str, list[str]] = {
    "names": ["planted", "reference", "k1"],
    "experiments": ["planted", "reference", "invented"],
    "recipe": ["recipe", "recipe/recipe.toml"],
    "criteria": ["recipe"],
    "run": [TRIM, "0", "unmask_arith"],
    "runs": [TRIM],
    "first": [FULL],
    "second": [TRIM],
    "folder": ["imported", "vectors", "results/runs", "out/new"],
    "path": ["model", "embedded", *MODELS],
    "model": ["model", "embedded", *MODELS],
    "output": ["out/x", "out/x.csv", "out/x.jsonl", "out/x.npz", "out/x.parquet"],
    "plot": ["out/x.png"],
    "store": ["results", "out/store"],
    "source": ["small/prompts.jsonl"],
    "decode_file": ["small/decode.toml", "small/decode.json"],
    "policy": ["trim", "layer_reuse:k=2", "small/policy.toml", "small/policy.json"],
    "policies": ["trim", "layer_reuse:k=2", "adaptive"],
    "trace": ["small/trace.npz"],
    "traces": ["small/trace.npz"],
    "foreign": ["seed"],
    "tasks": ["unmask_arith"],
    "task": ["unmask_arith"],
    "config": ["k*", "t0.7"],
    "prompts": ["2+2="],
    "ids": ["1,2,3"],
    "device": ["cpu", "a100"],
    "dtype": ["float32"],
    "name": ["mine"],
    "reason": ["It was wrong."],
    "data": ["out"],
    "lock": ["recipe/recipe.lock"],
    "rule": ["entropy_bound:bound=0.3", "top_n:n=2", "share"],
}
SMALL = ["1", "2", "3", "0.5"]


@cache
def commands_by_verb() -> dict[str, click.Command]:
    context = click.Context(app)
    found = {verb: app.get_command(context, verb) for verb in VERBS}
    return {verb: command for verb, command in found.items() if command is not None}


@st.composite
def _words(draw: st.DrawFn, parameter: click.Parameter, bad: bool) -> list[str]:
    """An option or argument as it stands on a command line."""
    name = str(parameter.name)
    if getattr(parameter, "is_flag", False):
        return [draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))]
    if isinstance(parameter.type, click.Choice):
        good = [str(choice) for choice in parameter.type.choices]
    else:
        good = GOOD.get(name, SMALL)
    value = draw(st.one_of(texts, numbers.map(_digits)) if bad else st.sampled_from(good))
    value = value.encode("utf-8", "replace").decode().replace("\0", "?")  # no system hands on a NUL
    if isinstance(parameter, click.Argument):
        return [value]
    return [draw(st.sampled_from(parameter.opts)), value]


def _digits(number: Any) -> str:
    return str(number) if abs(number) < 10**300 or isinstance(number, float) else "9" * 400


@st.composite
def commands(draw: st.DrawFn) -> Case:
    """Any verb with any of its options, one or some of them bad."""
    verbs = [verb for verb in commands_by_verb() if verb not in SERVES for _ in range(HEAVY.get(verb, USUAL))]
    verb = draw(st.sampled_from(verbs))
    parameters = [each for each in commands_by_verb()[verb].params if each.name not in ENDLESS]
    present = [each for each in parameters if draw(st.integers(0, 9)) < (9 if each.required else 3)]
    bad = draw(st.sampled_from(present)) if present else None
    words = [verb]
    for each in present:
        words += draw(_words(each, each is bad or draw(st.integers(0, 24)) == 0))
    if draw(st.integers(0, 19)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(texts).replace("\0", "?"))
    if verb in ("generate", "probe", "eval") and "--max-new-tokens" not in words:
        words += ["--max-new-tokens", "8"]
    if verb == "eval":
        words += ["--limit", "1"]
    if verb == "run-one":
        words.append("--keep-output")  # else it would redirect the output of this process
    return Case(tuple(words))


ON_RECIPES = [
    ("plan", "recipe"),
    ("plan", "recipe", "--json"),
    ("run", "recipe", "--dry-run"),
    ("check", "--foreign", "seed", "--criteria", "recipe"),
    ("plan", "recipe", "--to-the-end"),
]


@st.composite
def recipes(draw: st.DrawFn) -> Case:
    """A recipe with bad values in any of its fields, or a file that is no recipe."""
    good = as_toml(RECIPE)
    how = draw(st.sampled_from(["values"] * 8 + ["text", "file"]))
    content = as_toml(draw(changes(RECIPE))) if how == "values" else draw(spoiled(good))
    edit = (
        draw(edits("recipe/recipe.toml", good))
        if how == "file"
        else Edit("recipe/recipe.toml", content=content)
    )
    return Case(draw(st.sampled_from(ON_RECIPES)), (edit,), ("recipe", "results"))


ON_MODELS = [
    ("info", "model"),
    ("info", "model", "--json"),
    ("generate", "2+2=", "--model", "model", "--max-new-tokens", "8"),
    ("generate", "2+2=", "--model", "model", "--max-new-tokens", "8", "--chat", "--stop", "x"),
    ("generate", "--ids", "1,2", "--model", "model", "--max-new-tokens", "4", "--json"),
    ("ceiling", "trim", "--model", "model"),
]


ON_FAMILIES = [
    ("info", "{model}"),
    ("generate", "2+2=", "--model", "{model}", "--max-new-tokens", "8"),
    ("generate", "2+2=", "--model", "{model}", "--max-new-tokens", "8", "--temperature", "1", "--seed", "3"),
    ("generate", "--ids", "1,2", "--model", "{model}", "--max-new-tokens", "4", "--policy", "trim"),
    ("ceiling", "trim", "--model", "{model}"),
]


def _spoils_of(
    world: Path, part: str, on: list[tuple[str, ...]], parts: tuple[str, ...]
) -> st.SearchStrategy[Case]:
    """One or two files of a part of the world made bad, before one of these commands."""
    files = files_of(world, part)
    # A file is drawn by its name first, so that rare kinds of files come up as well.
    names = [name for name in sorted({Path(path).name for path in files}) for _ in range(OFTEN.get(name, 1))]

    @st.composite
    def spoils(draw: st.DrawFn) -> Case:
        chosen = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            name = draw(st.sampled_from(names))
            path = draw(st.sampled_from([path for path in files if Path(path).name == name]))
            chosen.append(draw(edits(path, files[path])))
        spoiled_runs = [Path(edit.path).parts[2] for edit in chosen if edit.path.startswith("results/runs/")]
        run = spoiled_runs[0] if spoiled_runs else TRIM
        named = {"{run}": run, "{model}": str(Path(chosen[0].path).parent)}
        words = (named.get(word, word.replace("{run}", run)) for word in draw(st.sampled_from(on)))
        return Case(tuple(words), tuple(chosen), parts)

    return spoils()


ON_STORES = [
    ("status",),
    ("status", "planted", "--json"),
    ("status", "reference"),
    ("check", "--explain"),
    ("check", "--json"),
    ("check", "--foreign", "seed"),
    ("report", "reference", "--output", "out/report", "--replay", "0"),
    ("report", "planted", "--output", "out/report", "--replay", "0"),
    ("report", "--foreign", "seed", "--output", "out/report"),
    ("export", "--output", "out/all.csv"),
    ("export", "--output", "out/all.parquet"),
    ("export", "planted", "--output", "out/tree"),
    ("plan", "recipe"),
    ("run", "recipe", "--dry-run", "--retry-failed"),
    ("run", "recipe", "--dry-run", "--to-the-end"),
    ("results", "planted"),
    ("results", "reference", "--json"),
    ("cancel", "reference"),
]


ON_RUNS = [
    ("logs", "{run}"),
    ("compare", "{run}", FULL),
    ("retract", "{run}", "--reason", "wrong"),
    ("retract", "{run}", "--undo"),
    ("rm", "{run}", "--yes"),
    ("cancel", "{run}"),
    ("run-one", "results/runs/{run}", "--keep-output"),
]
OFTEN = {"result.json": 4, "experiment.json": 4, "run.json": 2, "samples.jsonl": 2, "records.json": 2}
"""Files that most commands read."""
RULES: list[dict[str, Any]] = [
    {"kind": "threshold", "threshold": 0.9, "steps": 4},
    {"kind": "top_n", "n": 2, "score": "margin"},
    {"kind": "sequential", "steps": 4},
    {"kind": "entropy_bound", "bound": 0.35},
    {"kind": "factor", "factor": 1.0},
    {"kind": "random", "n": 2},
    {"kind": "share", "steps": 4, "eps": 0.001, "score": "entropy", "temperature": 0.5},
    {"kind": "origin", "steps": 4, "eps": 0.001},
    {"kind": "overdue", "steps": 4, "threshold": 0.9},
]


IMPORTED = "imported/gsm8k/k1/summary.json"


@st.composite
def imports(draw: st.DrawFn) -> Case:
    """A summary of older scripts with bad values, or in a bad place."""
    path = draw(
        st.sampled_from([IMPORTED] * 4 + ["imported/gsm8k_limit_5/k1/summary.json", "imported/summary.json"])
    )
    edit = draw(edits(path, as_json(SUMMARY)))
    return Case(
        ("import", "imported", "--name", draw(st.sampled_from(["new", "seed"]))),
        (edit,),
        ("imported", "results"),
    )


WITH_MODEL = ("--model", "model", "--max-new-tokens", "4")
ON_FILES = {
    "small/prompts.jsonl": [
        ("generate", "--input", "small/prompts.jsonl", *WITH_MODEL, "--output", "out/a.jsonl")
    ],
    "small/policy.toml": [("generate", "a", *WITH_MODEL, "--policy", "small/policy.toml")],
    "small/policy.json": [("ceiling", "small/policy.json", "--model", "model")],
    "small/decode.toml": [("generate", "a", "--model", "model", "--decode", "small/decode.toml")],
    "small/decode.json": [
        ("probe", "a", "--model", "model", "--decode", "small/decode.json", "--output", "out/t.npz")
    ],
    "small/trace.npz": [
        ("ceiling", "trim", "--model", "model", "--trace", "small/trace.npz"),
        ("ceiling", "layer_reuse:layers=auto,share=0.5,calibration=small/trace.npz", "--model", "model"),
    ],
    "vectors/single_len20.json": [("conformance", "vectors")],
}
TABLES = {
    "small/policy.toml": [
        {"kind": "trim", "keep": 0.25},
        *[each["policy"] for each in RECIPE["configurations"] if "policy" in each],
    ],
    "small/decode.toml": [
        RECIPE["decode"] | {"max_new_tokens": 8},
        *[{"max_new_tokens": 8, "rule": rule} for rule in RULES],
    ],
}


def files(world: Path) -> st.SearchStrategy[Case]:
    """Prompts, settings, policies, traces and vectors made bad."""
    contents = {path: (world / path).read_bytes() for path in ON_FILES}

    @st.composite
    def spoils(draw: st.DrawFn) -> Case:
        path = draw(st.sampled_from([*ON_FILES, *TABLES, "small/prompts.jsonl"]))
        edit = draw(edits(path, contents[path]))
        if path in TABLES and draw(st.booleans()):
            edit = Edit(path, content=as_toml(draw(changes(draw(st.sampled_from(TABLES[path]))))))
        return Case(draw(st.sampled_from(ON_FILES[path])), (edit,), ("model", "small", "vectors"))

    return spoils()


STATEMENTS = [
    "raise ValueError('x' * 10000)",
    "raise KeyboardInterrupt",
    "raise SystemExit({value})",
    "import os; os._exit(77)",
    "import os; os.abort if False else os._exit({value} if isinstance({value}, int) else 3)",
    "exit()",
    "return {value}",
    "raise BaseException({value})",
    "raise type('E', (Exception,), {{'__str__': lambda self: 1 / 0}})()",
    "return self.plan(view)",
    "return StepPlan(ops={value})",
    "return StepPlan(rows={value})",
    "return StepPlan({value}, {value})",
    "view.kind = {value}",
    "import nowhere",
    "raise MemoryError",
    "raise RecursionError",
    "raise UnicodeError('\\ud800')",
    "print('x' * 10); return StepPlan()",
    "assert False, {value}",
    "yield {value}",
]


@st.composite
def policies(draw: st.DrawFn) -> Case:
    """A policy of the user's own that fails, leaves, or answers with something else."""
    statement = draw(st.sampled_from(STATEMENTS)).format(value=repr(draw(values)))
    text = POLICY.replace("return StepPlan()", statement)
    how = draw(st.sampled_from(["plan"] * 5 + ["made", "imported", "bytes"]))
    if how == "made":
        text = POLICY.replace("self.options = options", "view = None; " + statement)
    content = text.encode("utf-8", "backslashreplace")
    if how == "imported":
        content = statement.replace("return ", "x = ").encode("utf-8", "backslashreplace") + b"\n" + content
    if how == "bytes":
        content = draw(spoiled(content))
    target = draw(st.sampled_from(["own_policy:Mine"] * 8 + ["own_policy:Other", "own_policy", *TEXTS]))
    policy = as_json(
        {
            "kind": "custom",
            "target": target,
            "options": draw(st.sampled_from([{}, {}, {"a": 1}, {"b": None}])),
        }
    )
    argv = ("generate", "2+2=", "--model", "model", "--max-new-tokens", "8", "--policy", policy.decode())
    return Case(argv, (Edit("own_policy.py", content=content),), ("model",))


@dataclass(frozen=True)
class Kind:
    """A kind of input: what its cases are drawn from, and how many a full run has."""

    strategy: Callable[[Path], st.SearchStrategy[Case]]
    cases: int


KINDS = {
    "commands": Kind(lambda _: commands(), 2_600),
    "recipes": Kind(lambda _: recipes(), 2_200),
    "locks": Kind(
        lambda world: _spoils_of(world, "recipe/recipe.lock", ON_RECIPES[:3], ("recipe", "results")), 400
    ),
    "checkpoints": Kind(lambda world: _spoils_of(world, "model", ON_MODELS, ("model",)), 1_000),
    "families": Kind(lambda world: _spoils_of(world, "families", ON_FAMILIES, ("families",)), 400),
    "stores": Kind(
        lambda world: _spoils_of(world, "results", [*ON_RUNS, *ON_STORES], ("recipe", "results")),
        2_000,
    ),
    "imports": Kind(lambda _: imports(), 500),
    "files": Kind(files, 600),
    "policies": Kind(lambda _: policies(), 300),
}


def good() -> list[Case]:
    """The commands above where nothing is spoiled; all of them must work."""
    on_files = [words for several in ON_FILES.values() for words in several]
    families = [
        tuple(word.replace("{model}", model) for word in words) for words in ON_FAMILIES for model in MODELS
    ]
    return [Case(words) for words in (*ON_RECIPES, *ON_MODELS, *families, *ON_STORES, *on_files)]
