"""A report of real runs of the model that ships with the package: tables, replays and the page in a browser."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

RECIPE = """
name = "real"
hypothesis = "Putting back changes of layers is faster."

[model]
checkpoint = "embedded"

[decode]
threshold = 0.9
max_new_tokens = 160

[[tasks]]
name = "unmask_arith"
limit = 10

[[tasks]]
name = "unmask_choice_text"
limit = 6

[[grid]]
name = "k{k}_{layers}"
policy = { kind = "layer_reuse", unit = "output", on = ["sub", "block"] }
[grid.axes]
k = [1, 3]
layers = ["first", "middle"]

[[timing]]
task = "unmask_arith"
prompts = 2
repeats = 3

[success]
task = "unmask_arith"
control = "k1_first"
candidates = ["k3_*"]
confirm = { speedup = 1.2, drop = 0.05 }
"""


def unmask(*arguments: object) -> str:
    command = [sys.executable, "-m", "unmask", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the runs of a small recipe and a report."""
    place = tmp_path_factory.mktemp("real")
    recipe = place / "recipe" / "recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text(RECIPE)
    unmask("run", recipe.parent, "--store", place / "results")
    program = "import sys; from unmask.cli.report import report; report(sys.argv[1:])"
    subprocess.run(
        [sys.executable, "-c", program, "real", "--store", str(place / "results"), "--replay", "2"],
        check=True,
    )
    return place / "results"


def test_results_are_written_up(real: Path) -> None:
    text = (real / "reports" / "real" / "results.md").read_text(encoding="utf-8")
    assert "**Equal by construction: k3_first, k3_middle." in text
    assert "**Status**: complete (4 accuracy runs, 1 timing run, 4 twins, 4 on limited rows)" in text
    assert "### unmask_arith (limit 10), 10 rows" in text
    assert "Speed-up vs k1_first" in text
    assert "| k1_middle (baseline) |" in text
    assert "too-few-samples" in text
    assert "## Verdict" in text


def test_replays_are_the_recorded_answers(real: Path) -> None:
    replays = [json.loads(file.read_text()) for file in real.glob("runs/*/replays/*.json")]
    assert len(replays) == 4
    assert all(one["same"] for one in replays)
    assert any("p" in step.get("ops", "") for one in replays for step in one["steps"])


def test_the_page_works_in_a_browser(real: Path, browser: "Browser") -> None:
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((real / "reports" / "real" / "report.html").as_uri())
    assert page.locator(".picture").count() >= 5
    assert page.locator("#viewer-panels .panel").count() == 2
    page.focus("#viewer-box")
    page.keyboard.press("End")
    right, wrong = page.locator("#viewer-panels .canvas").all_inner_texts()
    assert "####" in right
    assert right != wrong
    assert complaints == []
    page.close()
