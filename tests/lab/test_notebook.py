"""The notebook of the examples: its code runs from top to bottom, and it is kept without outputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "sweep.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
RUN_CELLS = """
import json, sys
names = {"__name__": "__main__"}
for number, source in enumerate(json.load(sys.stdin)):
    exec(compile(source, f"cell {number}", "exec"), names)
assert "torch" not in sys.modules, "torch was imported"
"""


def test_the_notebook_is_kept_without_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)


@pytest.mark.slow
def test_the_notebook_runs_a_sweep_and_shows_its_results(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS],
        input=json.dumps(["".join(cell["source"]) for cell in CODE]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "missing  unmask_arith_limit_6 trim_0.0" in lines
    assert len([line for line in lines if line.startswith("done ")]) == 2
    assert [line for line in lines if "'Configuration': 'trim_0.0'" in line and "'State': 'done'" in line]
    assert lines[-2:] == ["0 events", "trim ['done', 'done']"]
    assert (tmp_path / "first_sweep" / "results" / "reports" / "trim" / "report.html").exists()
