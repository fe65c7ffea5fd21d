"""A server on the embedded model."""

import threading
from collections.abc import Iterator

import pytest

import unmask
from unmask.play.server import PlayServer
from unmask.play.session import Loading, Session


@pytest.fixture(scope="session")
def session() -> Session:
    """Loads the embedded model once for all tests."""
    return Session(Loading("embedded", lambda checkpoint, mask: unmask.load(checkpoint, mask_token_id=mask)))


@pytest.fixture(scope="session")
def server(session: Session) -> Iterator[PlayServer]:
    """Serves on a free port."""
    found = PlayServer(session)
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()
