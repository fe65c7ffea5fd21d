"""The notebooks of the examples: their code runs from top to bottom, and they are kept without outputs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(file.name for file in EXAMPLES.glob("*.ipynb"))
RUN_CELLS = """
import json, sys
names = {"__name__": "__main__"}
for number, source in enumerate(json.load(sys.stdin)):
    exec(compile(source, f"cell {number}", "exec"), names)
print("with torch" if "torch" in sys.modules else "without torch")
"""


def code_of(name: str) -> list[dict[str, Any]]:
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def output_of(name: str, folder: Path) -> list[str]:
    """What the cells of a notebook print, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS],
        input=json.dumps(["".join(cell["source"]) for cell in code_of(name)]),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_kept_without_outputs(name: str) -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code_of(name))


@pytest.mark.slow
def test_a_sweep_is_run_and_its_results_are_shown(tmp_path: Path) -> None:
    lines = output_of("sweep.ipynb", tmp_path)
    assert "missing  unmask_arith_limit_6 trim_0.0" in lines
    assert len([line for line in lines if line.startswith("done ")]) == 2
    assert [line for line in lines if "'Configuration': 'trim_0.0'" in line and "'State': 'done'" in line]
    assert lines[-3:] == ["0 events", "trim ['done', 'done']", "without torch"]
    assert (tmp_path / "first_sweep" / "results" / "reports" / "trim" / "report.html").exists()


@pytest.mark.slow
def test_a_policy_of_ones_own_acts_and_is_refused_where_it_may_not(tmp_path: Path) -> None:
    lines = output_of("own_policy.ipynb", tmp_path)
    assert [line for line in lines if line.startswith("sub ") and "ppp" in line]
    assert [line for line in lines if "plan a REFRESH first" in line]
    works = {
        line[:24].strip(): float(line.split()[-1]) for line in lines if line.startswith(("base", "late"))
    }
    assert works["baseline"] == 1.0
    assert len({*works.values()}) == 3, "the policy acts, and its setting matters"
    assert "the same tokens and the same work: True" in lines


@pytest.mark.slow
def test_a_store_is_read_and_gives_the_figures_of_the_report(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    lines = output_of("reading_a_store.ipynb", tmp_path)
    assert "lab.compare agrees: True" in lines
    assert [line for line in lines if line.endswith("of 24 answers differ in their text")]
    assert lines[-1] == "without torch"
