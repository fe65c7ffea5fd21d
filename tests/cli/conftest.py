"""Small checkpoints with and without a tokenizer, planted sweeps, and a way to run the command line in this process."""

import shutil
import sys
from pathlib import Path

import pytest
from cli_cases import RECIPE, Run, write_tokenizer
from click.testing import CliRunner, Result
from planted import plant, use_planted_worker, write_recipe

from unmask.cli import app
from unmask.model.synthetic import write_checkpoint
from unmask.store import Store


@pytest.fixture(scope="session")
def bare_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without tokenizer. Shared by all tests: do not change it."""
    return write_checkpoint(RECIPE, tmp_path_factory.mktemp("models") / "bare")


@pytest.fixture(scope="session")
def text_model(bare_model: Path) -> Path:
    """A checkpoint with tokenizer and chat template. Shared by all tests: do not change it."""
    folder = bare_model.with_name("text")
    shutil.copytree(bare_model, folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def spoiled(text_model: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint with tokenizer that a test may spoil."""
    return Path(shutil.copytree(text_model, tmp_path / "spoiled"))


@pytest.fixture
def run() -> Run:
    """Run the command line with some arguments."""

    def invoke(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], stdin, prog_name="unmask")

    return invoke


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe's folder with an invented lock."""
    return write_recipe(tmp_path / "recipes" / "planted")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, which the verbs find by the environment."""
    monkeypatch.setenv("UNMASK_STORE", str(tmp_path / "results"))
    return Store(tmp_path / "results")


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that plant results instead of computing them."""
    monkeypatch.setattr(sys, "executable", use_planted_worker(tmp_path))


@pytest.fixture
def done(run: Run, recipe: Path, store: Store) -> Path:
    """The recipe with all of its results, known to the store."""
    plant(store, recipe)
    assert run("run", recipe).exit_code == 0
    return recipe
