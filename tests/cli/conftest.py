"""Small checkpoints with and without a tokenizer, and a way to run the command line in this process."""

import shutil
from pathlib import Path

import pytest
from cli_cases import RECIPE, Run, write_tokenizer
from click.testing import CliRunner, Result

from unmask.cli import app
from unmask.model.synthetic import write_checkpoint


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
