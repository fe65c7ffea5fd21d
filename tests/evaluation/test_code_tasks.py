"""Tasks that run model-written programs: refused without bubblewrap, and how they ran is in every result and table."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from unmask.cli import app
from unmask.evaluation import sandbox
from unmask.store import Store
from unmask.store.result import AccuracyResult
from unmask.store.state import state_of

pytestmark = pytest.mark.usefixtures("lm_eval")
PROBLEM = "the command bwrap is not installed here"
RECIPE = """
name = "code"
hypothesis = "Programs run where the recipe lets them."

[model]
checkpoint = "{model}"
[decode]
max_new_tokens = 8
[evaluation]
allow_code = true
data = "{data}"
[[tasks]]
name = "humaneval"
[[configurations]]
name = "baseline"
"""


def unmask(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_problem", lambda: PROBLEM)


def evaluate(model: Path, data: Path, *flags: str) -> Result:
    options = ("--tasks", "humaneval,gsm8k", "--data", data, "--limit", 1, "--max-new-tokens", 8)
    with warnings.catch_warnings(record=True):
        return unmask("eval", "--model", model, *options, *flags)


@pytest.mark.usefixtures("without_bubblewrap")
def test_refused_without_bubblewrap_before_any_model_is_loaded(invented: Path) -> None:
    result = evaluate(Path("/no/such/model"), invented, "--allow-code")
    assert result.exit_code == 2
    result = unmask("eval", "--model", "embedded", "--tasks", "humaneval", "--data", invented, "--allow-code")
    assert result.exit_code == 2
    assert PROBLEM in result.output
    assert "install the package bubblewrap" in result.output.replace("\n", " ")


@pytest.mark.usefixtures("without_bubblewrap")
def test_unsafe_programs_are_marked(text_model: Path, invented: Path) -> None:
    shown = evaluate(text_model, invented, "--allow-unsafe-code")
    assert shown.exit_code == 0, shown.output
    assert "programs ran: unsafe" in shown.output
    told = evaluate(text_model, invented, "--allow-code", "--allow-unsafe-code", "--json")
    tasks: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])["tasks"]
    assert {name: entry["sandbox"] for name, entry in tasks.items()} == {"humaneval": "unsafe", "gsm8k": None}


def test_isolated_programs_are_marked_too(text_model: Path, invented: Path) -> None:
    if problem := sandbox.bubblewrap_problem():
        pytest.skip(problem)
    shown = evaluate(text_model, invented, "--allow-code", "--allow-unsafe-code")
    assert shown.exit_code == 0, shown.output
    assert "programs ran: bubblewrap" in shown.output


@pytest.mark.usefixtures("without_bubblewrap")
def test_a_lock_is_prepared_without_bubblewrap(text_model: Path, invented: Path, tmp_path: Path) -> None:
    """No program of a model runs for it, and the machine with a network may be another one."""
    lock = tmp_path / "code.lock"
    options = ("--model", text_model, "--tasks", "humaneval", "--data", invented, "--allow-code")
    assert unmask("prepare", *options, "--output", lock).exit_code == 0
    assert "humaneval" in lock.read_text()


@pytest.fixture
def no_bwrap_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For workers, which are processes of their own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    sandbox.bubblewrap_problem.cache_clear()
    yield
    sandbox.bubblewrap_problem.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("no_bwrap_on_the_path")
def test_workers_refuse_mark_and_never_mix_up(text_model: Path, invented: Path, tmp_path: Path) -> None:
    store, folder = Store(tmp_path / "results"), tmp_path / "code"
    folder.mkdir()
    text = RECIPE.format(model=text_model, data=invented)
    (folder / "recipe.toml").write_text(text)
    refused = unmask("run", folder, "--store", store.root)
    assert refused.exit_code == 1, refused.output
    (run,) = store.runs()
    assert "install the package bubblewrap" in str(state_of(run).reason)
    (folder / "recipe.toml").write_text(text.replace("allow_code", "allow_unsafe_code = true\nallow_code"))
    ran = unmask("run", folder, "--store", store.root, "--retry-failed")
    assert ran.exit_code == 0, ran.output
    assert "unsafe" in ran.output
    (same,) = store.runs()
    result = same.result()
    assert same.id == run.id
    assert isinstance(result, AccuracyResult)
    assert result.sandbox == "unsafe"
    assert unmask("report", "code", "--store", store.root).exit_code == 0
    for name in ("results.md", "report.html"):
        (page,) = store.root.rglob(name)
        assert "Programs" in page.read_text()
        assert "unsafe" in page.read_text()
