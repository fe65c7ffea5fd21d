"""What must not change when code moves: every figure that a fixed store and fixed weights lead to, as texts.

`python tests/reference/documents.py` writes them anew. That is right only where a change is meant to be seen
by users, and its commit says which. The store was written by version 0.1; the results of MMLU and HumanEval in it are
invented. The embedded model plays no part.
"""

import json
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from checkpoints import MASK  # noqa: E402
from policy_cases import DECODE, EXAMPLES, engine  # noqa: E402
from recipe_cases import lock_for  # noqa: E402
from unmask import ScoreRequest  # noqa: E402
from unmask.cli import app  # noqa: E402
from unmask.spec.recipe import read_recipe  # noqa: E402
from unmask.spec.sweep import sweep_of  # noqa: E402
from unmask.store.store import run_id  # noqa: E402

STORE, EXPECTED = HERE / "store", HERE / "expected"
RECIPES = HERE.parents[1] / "recipes"
WRITTEN = re.compile(r"Written [0-9-]+ [0-9:]+ UTC by unmask [0-9.]+|\*\*Date\*\*: [0-9-]+")
"""When a report was made, in both of its forms."""
DIGITS = 4
"""Decimals of a score that are compared: products round otherwise on other processors."""


def unmask(*arguments: object) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def as_text(document: Any) -> str:
    """A document as lines that a reader can compare."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def of_the_store() -> Iterator[tuple[str, str]]:
    """What the commands say of the store: tables, findings, differences, reports, exports."""
    with TemporaryDirectory() as name:
        store = Path(name) / "store"
        shutil.copytree(STORE, store)
        place = ("--store", store)
        for experiment in ("reference", "invented"):
            said = unmask("report", experiment, *place, "--replay", 0)
            yield f"{experiment}/report.txt", said.replace(str(store), "store")
            for file in sorted((store / "reports" / experiment).iterdir()):
                yield f"{experiment}/{file.name}", WRITTEN.sub("", file.read_text(encoding="utf-8"))
            findings = json.loads(unmask("check", experiment, *place, "--json"))
            yield f"{experiment}/check.json", as_text(findings)
            yield f"{experiment}/check.txt", unmask("check", experiment, *place)
            unmask("export", experiment, *place, "-o", store / f"{experiment}.csv")
            yield f"{experiment}/export.csv", (store / f"{experiment}.csv").read_text(encoding="utf-8")
            yield f"{experiment}/status.txt", unmask("status", experiment, *place)
        first, second = ("448a521e69f572d9", "9d8f5374a5ec98e1")
        yield (
            "reference/compare.json",
            as_text(json.loads(unmask("compare", first, second, *place, "--json"))),
        )
        yield "reference/compare.txt", unmask("compare", first, second, *place)


def run_ids() -> dict[str, dict[str, str]]:
    """The id of every run of every shipped recipe, under an invented lock."""
    found = {}
    for file in sorted(RECIPES.glob("*/recipe.toml")):
        recipe = read_recipe(file)
        found[recipe.name] = {run.label: run_id(run.identity) for run in sweep_of(recipe, lock_for(recipe))}
    return found


def decoding() -> dict[str, Any]:
    """Tokens, ledgers and scores of a small model with drawn weights, under every policy."""
    drawn = random.Random(0)
    prompts = [[drawn.randrange(MASK) for _ in range(length)] for length in (1, 15, 16, 33)]
    targets = [
        ScoreRequest(prompts[2], [drawn.randrange(MASK) for _ in range(size)]) for size in (1, 3, 5, 5)
    ]
    model = engine(seed=5)
    found = {}
    for spec, examples in EXAMPLES.items():
        for policy in (*examples.acting, *examples.dead):
            answers = model.generate(prompts, DECODE, policy, batch_size=3)
            scored = model.score(targets, decode={"block_size": 16, "sub_block_size": 4}, policy=policy)
            found[f"{spec.__name__} {json.dumps(policy)}"] = {
                "tokens": [answer.ids for answer in answers],
                "finish": [answer.finish_reason for answer in answers],
                "ledgers": [answer.ledger.as_dict() for answer in answers],
                "scores": [round(score.logprob, DIGITS) for score in scored.scores],
                "greedy": [score.is_greedy for score in scored.scores],
            }
    return found


def documents() -> Iterator[tuple[str, str]]:
    """All of them, by the names of their files."""
    yield from of_the_store()
    yield "run_ids.json", as_text(run_ids())
    yield "decoding.json", as_text(decoding())


def write() -> None:
    """Write the expected files anew."""
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for name, text in documents():
        file = EXPECTED / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
