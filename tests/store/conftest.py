"""A store in a temporary folder."""

from pathlib import Path

import pytest

from unmask.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "results")
