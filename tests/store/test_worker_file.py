"""A worker that takes several runs counts for the one that its file names, and every attempt ends by a file."""

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from store_cases import answer, identity, wait_until

from unmask.store import RunFolder, Store
from unmask.store.attempt import CANCEL_SIGNAL, Attempt
from unmask.store.state import holder, state_of
from unmask.store.worker_file import WorkerFile, held_run, runs_of_jobs


@pytest.fixture
def worker(store: Store) -> WorkerFile:
    return WorkerFile.create(store.root)


@pytest.fixture
def one(store: Store) -> RunFolder:
    return store.run(identity(k=2))


@pytest.fixture
def other(store: Store) -> RunFolder:
    return store.run(identity(k=3))


def begin(run: RunFolder, worker: WorkerFile) -> Attempt:
    worker.hold(run.id)
    return run.new_attempt(worker.name)


def change(attempt: Attempt, **fields: object) -> None:
    file = attempt.folder / "attempt.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_living_process_counts_for_the_run_that_its_file_names(
    worker: WorkerFile, one: RunFolder, other: RunFolder
) -> None:
    begin(one, worker)
    assert state_of(one).status == "running"
    begin(other, worker)
    assert (state_of(one).status, state_of(other).status) == ("interrupted", "running")
    worker.hold(None)
    assert state_of(other).status == "interrupted"
    begin(one, worker)
    worker.close()
    assert state_of(one).status == "interrupted"


def test_an_attempt_without_a_worker_file_counts_by_its_process(one: RunFolder) -> None:
    attempt = one.new_attempt()
    assert state_of(one).status == "running"
    attempt.interrupt()
    assert state_of(one).status == "interrupted"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KeyboardInterrupt, "interrupted", "stopped without a result"),
        (SystemExit, "interrupted", "stopped without a result"),
        (ZeroDivisionError, "failed", "ZeroDivisionError"),
    ],
)
def test_an_attempt_ends_by_a_file(
    one: RunFolder, error: type[BaseException], status: str, reason: str
) -> None:
    attempt = one.new_attempt()
    with pytest.raises(error), attempt.working():
        raise error
    assert attempt.is_over()
    assert (attempt.interruption() is None) == (status == "failed")
    assert state_of(one).status == status
    assert reason in str(state_of(one).reason)


@pytest.fixture
def interrupts() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(CANCEL_SIGNAL, interrupt)
    yield
    signal.signal(CANCEL_SIGNAL, before)


@pytest.mark.usefixtures("interrupts")
def test_a_wish_that_a_run_ends_reaches_its_worker_wherever_it_is(worker: WorkerFile, one: RunFolder) -> None:
    attempt = begin(one, worker)
    with pytest.raises(KeyboardInterrupt), attempt.working():  # noqa: PT012
        attempt.answer(answer("a"))
        Attempt(attempt.folder).cancel()  # as another process would
        wait_until(lambda: False)
    stop = attempt.interruption()
    assert stop is not None
    assert stop.reason == "cancelled"
    assert "cancelled" in str(state_of(one).reason)
    assert list(one.answers()) == ["a"]


def test_of_two_workers_at_a_run_the_later_one_withdraws(
    store: Store, worker: WorkerFile, one: RunFolder
) -> None:
    first, late = begin(one, worker), WorkerFile.create(store.root)
    assert late.name != worker.name
    second = begin(one, late)
    held_by = holder(one, second)
    assert held_by is not None
    assert held_by.number == first.number
    assert holder(one, first) is None
    second.withdraw()
    assert [each.number for each in one.attempts()] == [first.number]
    first.fail("The disk is full.")
    assert holder(one, begin(one, late)) is None


def test_an_earlier_start_of_the_same_job_is_over_whatever_its_heartbeat_says(
    worker: WorkerFile, one: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = begin(one, worker)
    change(elsewhere, host="a_node_that_died", slurm={"job": "17"})
    stranger = one.new_attempt(worker.name)
    assert holder(one, stranger) is not None
    stranger.withdraw()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert holder(one, one.new_attempt(worker.name)) is None


def test_files_of_killed_workers_are_taken_away_by_the_next(
    store: Store, worker: WorkerFile, one: RunFolder
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file = store.root / "workers" / f"{worker.name}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": gone.pid, "run": one.id}))
    assert held_run(store.root, worker.name) == one.id
    WorkerFile.create(store.root)
    assert held_run(store.root, worker.name) is None
    assert len(list(file.parent.iterdir())) == 1


def test_a_job_speaks_for_the_run_that_its_newest_worker_holds(
    store: Store, one: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    WorkerFile.create(store.root).hold("an earlier start")
    assert runs_of_jobs(store.root) == {"17_3": "an earlier start"}
    WorkerFile.create(store.root).hold(one.id)
    assert runs_of_jobs(store.root) == {"17_3": one.id}


@pytest.mark.parametrize("name", ["../../secret", "a/b", "", ".hidden", "x" * 300])
def test_the_name_of_a_worker_leaves_no_folder(one: RunFolder, name: str) -> None:
    attempt = one.new_attempt()
    change(attempt, worker=name)
    assert not isinstance(attempt.record().worker, str)
    assert state_of(one).status == "running"


def test_a_file_that_cannot_be_taken_away_hides_no_other_error(
    worker: WorkerFile, store: Store, one: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = begin(one, worker)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        worker.close()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "glob", refuse)
        WorkerFile.create(store.root)
    assert state_of(one).attempt == attempt.number
