"""A sweep over caches with real workers: planned, run, compared and reported, on a whole-canvas checkpoint."""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checkpoints import OF_FAMILY
from unmask import lab
from unmask.analysis.guards import run_guards
from unmask.analysis.stored import own_table
from unmask.cli import app
from unmask.store import Store
from unmask.store.result import AccuracyResult

pytestmark = pytest.mark.slow

RECIPE = """\
name = "caches"
hypothesis = "A cache saves work."

[model]
checkpoint = "../canvas"

[decode]
max_new_tokens = 24
sub_block_size = 8
rule = { kind = "top_n", n = 2 }

[[tasks]]
name = "unmask_arith"
limit = 3

[[tasks]]
name = "unmask_choice"
limit = 2
estimator = "monte_carlo"

[[grid]]
name = "{cache}"
decode = { draws = 4 }
[grid.axes]
"decode.cache" = ["none", "prefix", "dual"]

[[configurations]]
name = "dual_fresh"
decode = { cache = "dual", refresh_every = 1, draws = 4 }

[[configurations]]
name = "prefix_trim"
policy = { kind = "trim", inside = true }
decode = { cache = "prefix", draws = 4 }

[[timing]]
task = "unmask_arith"
prompts = 1
repeats = 2

[success]
task = "unmask_arith"
control = "none"
candidates = ["prefix", "dual"]
by = "work"
confirm = { gain = 1.5, drop = 0.05 }
"""


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Store, str]]:
    """The recipe, its store, and what `unmask plan` said before anything ran."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))
    from text_model import SIZE, write_text_model

    place = tmp_path_factory.mktemp("caches")
    write_text_model(place / "canvas", **OF_FAMILY["llada"] | {"embedding_size": SIZE})
    recipe = place / "recipe" / "recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        planned = run("plan", recipe, "--store", place / "store", "--json").stdout
        run("run", recipe, "--store", place / "store")
        run("report", "caches", "--store", place / "store", "--replay", "1")
        yield recipe, Store(place / "store"), planned


def results(swept: tuple[Path, Store, str], task: str) -> dict[str, AccuracyResult]:
    recipe, store, _ = swept
    runs = [run for run in lab.plan(recipe, store=store.root).runs if run.planned.task == task]
    found = {run.planned.configuration: run.folder.result() for run in runs if run.planned.kind == "accuracy"}
    return {name: result for name, result in found.items() if isinstance(result, AccuracyResult)}


def test_plans_price_caches_by_the_steps_of_the_rule(swept: tuple[Path, Store, str]) -> None:
    outlook = json.loads(swept[2].splitlines()[-1])["outlook"]
    assert outlook["unpriced"] == []
    assert outlook["steps_known_by"] == ["the unmasking rule"]
    idle = {(part["fate"], *part["configurations"]) for part in outlook["idle"]}
    assert idle == {
        ("Cannot act", "prefix_trim"),
        ("Nothing new", "prefix", "dual", "dual_fresh"),
    }
    saved = {name: ceiling["flops_saved"] for name, ceiling in outlook["ceilings"].items()}
    assert saved["none"] == saved["dual_fresh"] == 0
    assert 0.5 < saved["prefix"] < saved["dual"] < saved["prefix_trim"] < 1


def test_ledgers_count_by_kind(swept: tuple[Path, Store, str]) -> None:
    found = results(swept, "unmask_arith")
    steps = {
        name: {kind: count for kind, count in result.effect["generation"].forwards.items() if count}
        for name, result in found.items()
    }
    # Three answers of three sub-blocks in four steps each.
    assert steps == {
        "none": {"block": 36},
        "dual_fresh": {"block": 36},
        "prefix": {"block": 9, "tail": 27},
        "prefix_trim": {"block": 9, "tail": 27},
        "dual": {"block": 9, "sub": 27},
    }
    assert found["none"].answers.sha256 == found["dual_fresh"].answers.sha256
    assert found["prefix_trim"].effect["generation"].reuse_fraction


def test_estimates_say_their_error_and_are_made_once(swept: tuple[Path, Store, str]) -> None:
    """They take no cache and leave a policy nothing to do, so one run stands for all configurations."""
    found = results(swept, "unmask_choice")
    assert set(found) == {"none", "prefix", "dual", "dual_fresh", "prefix_trim"}
    assert {result.likelihood_stderr is not None for result in found.values()} == {True}
    assert len({result.attempt for result in found.values()}) == 1
    folders = {folder.name for folder in swept[1].runs_folder.glob("*unmask_choice*")}
    assert len(folders) == 1


def test_guards_do_not_mistake_another_cache(swept: tuple[Path, Store, str]) -> None:
    """Candidates with another cache than the control: their gain is compared, and nothing is called invalid for it."""
    invalid = {finding.guard for finding in run_guards(own_table(swept[1])) if finding.severity == "invalid"}
    assert invalid <= {"too-few-samples"}


def test_the_report_compares_caches(swept: tuple[Path, Store, str]) -> None:
    text = (swept[1].root / "reports/caches/results.md").read_text()
    assert "| dual (no reuse) |" in text
    assert "of the counted work of none" in text
    page = (swept[1].root / "reports/caches/report.html").read_text()
    assert "tail" in page
    (recording, *_) = (json.loads(file.read_text()) for file in swept[1].root.glob("runs/*/replays/*.json"))
    assert recording["same"]
    assert recording["end"] == recording["prompt_tokens"] + 24


def test_exports_hold_the_cache(swept: tuple[Path, Store, str], tmp_path: Path) -> None:
    run("export", "caches", "--store", swept[1].root, "-o", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    caches = {
        row["configuration"]: json.loads(row["decode"])["cache"] for row in rows if row["kind"] == "accuracy"
    }
    assert caches == {
        "none": "none",
        "prefix": "prefix",
        "dual": "dual",
        "dual_fresh": "dual",
        "prefix_trim": "prefix",
    }
