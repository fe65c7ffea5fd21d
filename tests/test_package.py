"""The package as a whole: what it exports, what it imports, and how it is written."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unmask

ROOT = Path(__file__).parents[1]
SOURCES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "src").rglob("*.py")}
LONGEST_FILE = 450


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_import_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    result = run_python(program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize("name", unmask.__all__)
def test_exported_names_exist(name: str) -> None:
    assert getattr(unmask, name).__doc__


def test_all_is_sorted_and_other_names_are_refused() -> None:
    assert list(unmask.__all__) == sorted(unmask.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = unmask.nothing_of_the_kind


@pytest.mark.parametrize(
    "module",
    ["unmask", "unmask.spec", "unmask.cost", "unmask.errors", "unmask.lab", "unmask.model.checkpoint"],
)
def test_imports_no_torch(module: str) -> None:
    result = run_python(f"import sys, {module}; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_modules_say_what_they_are_and_stay_short() -> None:
    silent = [str(file) for file, tree in SOURCES.items() if not ast.get_docstring(tree)]
    assert silent == [], "a module opens by saying what it knows"
    lengths = {str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_version_is_that_of_the_project() -> None:
    assert f'version = "{unmask.__version__}"' in (ROOT / "pyproject.toml").read_text()
