"""Stores to report on."""

import sys
from pathlib import Path

import pytest
from invented_store import add_replays, write_store

from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))  # its simulated sweeps are reported on too


@pytest.fixture(scope="session")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An invented experiment with replays. Shared by all tests: do not change it."""
    store = write_store(tmp_path_factory.mktemp("invented") / "results", rows=400)
    add_replays(store, "05_invented", ["k1_first", "k2_last"])
    return store


@pytest.fixture(scope="session")
def document(invented: Store) -> Document:
    """What there is to say of it."""
    return gather(invented, ["05_invented"])
