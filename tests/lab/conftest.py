"""Sweeps with planted results and workers, as in the tests of the command line."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from planted import use_planted_worker, write_recipe

from unmask.store import Store


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe's folder with an invented lock."""
    return write_recipe(tmp_path / "recipes" / "planted")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "results")


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that plant results instead of computing them."""
    monkeypatch.setattr(sys, "executable", use_planted_worker(tmp_path))
