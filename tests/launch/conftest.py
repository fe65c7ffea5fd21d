"""A real SLURM for the tests that ask for one: started once a process, gone with it."""

import os
from collections.abc import Iterator

import pytest
from slurm_lab import SlurmLab

REQUIRED = "UNMASK_REQUIRE_SLURM"


def _lab(accounting: bool) -> Iterator[SlurmLab]:
    if missing := SlurmLab.missing(accounting):
        reason = f"SLURM is not installed (`make system-deps`): no {', '.join(missing)}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    lab = SlurmLab(accounting)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def bare_slurm() -> Iterator[SlurmLab]:
    """SLURM without accounting: sacct does not work."""
    yield from _lab(accounting=False)


@pytest.fixture(scope="session")
def accounting_slurm() -> Iterator[SlurmLab]:
    """SLURM with its database."""
    yield from _lab(accounting=True)


@pytest.fixture
def slurm(bare_slurm: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """The client programs speak to the SLURM without accounting."""
    yield from _in_use(bare_slurm, monkeypatch)


@pytest.fixture
def slurm_with_accounting(accounting_slurm: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """The client programs speak to the SLURM with accounting."""
    yield from _in_use(accounting_slurm, monkeypatch)


def _in_use(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    monkeypatch.setenv("SLURM_CONF", str(lab.layout.conf))
    yield lab
    lab.ask("scancel", "--full", "--user", str(os.getuid()))
