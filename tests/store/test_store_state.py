"""Statuses are computed from files, processes and the scheduler's word; nothing breaks a table."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from store_cases import done, fields_of_a_result, identity

from unmask.store import RunFolder, Store, canonical
from unmask.store.process import ProcessMark, lives, started, this_process
from unmask.store.state import State, SubmittedJob, state_of, states


def elsewhere(run: RunFolder, **changes: Any) -> None:
    """Make the newest attempt one of another machine."""
    file = run.attempts()[-1].folder / "attempt.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "node9", **changes}))


def both(store: Store, run: RunFolder, jobs: dict[str, str] | None = None, now: float | None = None) -> State:
    """The state of a run, which must be the same alone and in a table."""
    submitted = {name: SubmittedJob("77", word) for name, word in (jobs or {}).items()}
    alone = state_of(run, submitted, now)
    assert dict(states(store, submitted, now))[run.name] == alone
    return alone


def test_a_run_that_nobody_began_is_missing_or_waits(store: Store) -> None:
    run = store.run(identity())
    assert both(store, run).status == "missing"
    assert both(store, run, {run.id: "PENDING"}).status == "pending"
    assert both(store, run, {run.id: "RUNNING"}).status == "running"
    assert both(store, run, {run.id: "FAILED"}).status == "missing"
    assert both(store, run, {"another": "PENDING"}).status == "missing"
    unknown = both(store, run, {run.id: "UNKNOWN"})
    assert (unknown.status, unknown.job) == ("unknown", "77")


def test_a_living_process_runs_and_tells_how_far_it_is(store: Store) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    attempt.progress(3, 9)
    state = both(store, run)
    assert (state.status, state.done, state.total, state.attempt) == ("running", 3, 9, "0001")
    assert state.host == this_process().host


def test_another_process_with_the_same_number_is_not_ours(store: Store) -> None:
    run = store.run(identity())
    file = run.new_attempt().folder / "attempt.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "pid_started": record["pid_started"] - 1}))
    state = both(store, run)
    assert state.status == "interrupted"
    assert "unmask run" in str(state.reason)


def test_a_failure_is_told_with_its_reason(store: Store) -> None:
    run = store.run(identity())
    run.new_attempt().fail("no memory")
    assert both(store, run) == State("failed", "no memory", "0001", this_process().host)
    assert both(store, run, {run.id: "PENDING"}).status == "pending"
    run.new_attempt()
    assert both(store, run).status == "running"


def test_an_older_attempt_that_still_lives_is_the_one_that_runs(store: Store) -> None:
    run = store.run(identity())
    run.new_attempt()
    run.new_attempt().fail("no memory")
    state = both(store, run)
    assert (state.status, state.attempt) == ("running", "0001")


@pytest.mark.parametrize(
    ("age", "status"),
    [(0, "running"), (110, "running"), (-110, "running"), (130, "interrupted"), (-3600, "interrupted")],
)
def test_elsewhere_a_young_heartbeat_counts_whichever_clock_is_ahead(
    store: Store, age: int, status: str
) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    attempt.progress(1, 2)
    elsewhere(run)
    now = 1_700_000_000.0
    os.utime(attempt.folder / "progress", (now - age, now - age))
    assert both(store, run, now=now).status == status


def test_a_clock_set_back_changes_nothing_here(store: Store) -> None:
    run = store.run(identity())
    for _ in range(2):
        attempt = run.new_attempt()
        attempt.progress(1, 2)
    tomorrow = time.time() + 86_400
    os.utime(run.attempts()[0].folder, (tomorrow, tomorrow))
    os.utime(attempt.folder / "progress", (tomorrow, tomorrow))
    state = both(store, run)
    assert (state.status, state.attempt) == ("running", "0002")


def test_the_start_of_a_process_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = this_process()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert this_process() == before
    assert lives(before) is True
    assert lives(replace(before, boot="another")) is None
    assert lives(replace(before, host="another")) is None
    assert lives(replace(before, pid=2**22 + 1)) is False
    assert lives(ProcessMark()) is None
    assert started(2**22 + 1) is None


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("RUNNING", "running"),
        ("COMPLETING", "running"),
        ("PENDING", "pending"),
        ("REQUEUED", "pending"),
        ("TIMEOUT", "interrupted"),
        ("CANCELLED by 1000", "interrupted"),
        ("NODE_FAIL", "interrupted"),
        ("VANISHED", "interrupted"),
        ("UNKNOWN", "running"),
    ],
)
def test_for_a_job_the_word_of_the_scheduler_wins_over_a_heartbeat(
    store: Store, word: str, status: str
) -> None:
    run = store.run(identity())
    run.new_attempt().progress(1, 2)
    elsewhere(run, slurm={"job": "77"})
    state = both(store, run, {run.id: word})
    assert state.status == status
    if status == "interrupted":
        assert str(state.reason).startswith(word.split()[0])


def test_a_job_that_runs_counts_though_its_heartbeat_is_old(store: Store) -> None:
    run = store.run(identity())
    attempt = run.new_attempt()
    elsewhere(run, slurm={"job": "77"})
    os.utime(attempt.folder / "attempt.json", (1, 1))
    assert both(store, run).status == "interrupted"
    assert both(store, run, {run.id: "RUNNING"}).status == "running"
    assert both(store, run, {run.id: "UNKNOWN"}).status == "unknown"


def test_done_and_retracted(store: Store) -> None:
    run = done(store)
    assert both(store, run, {run.id: "RUNNING"}) == State("done", None, "0001", "node1")
    run.retract("wrong data")
    assert both(store, run) == State("retracted", "wrong data", "0001", "node1")


@pytest.mark.parametrize("content", ["", '{"id": "', "{}", "[]", '{"id": "0123456789abcdef"}'])
def test_a_damaged_result_is_a_failure_that_says_how_to_mend_it(store: Store, content: str) -> None:
    run, other = done(store), done(store, k=3)
    (run.folder / "result.json").write_text(content)
    state = both(store, run)
    assert state.status == "failed"
    assert "`unmask run RECIPE --retry-failed`" in str(state.reason)
    assert both(store, other).status == "done"


def test_a_result_with_a_value_of_the_wrong_kind_is_damaged(store: Store) -> None:
    run = store.run(identity())
    (run.folder / "result.json").write_bytes(canonical(fields_of_a_result(run, value="high")))
    assert both(store, run).status == "failed"


def test_damaged_files_of_an_attempt_break_no_table(store: Store) -> None:
    run = store.run(identity())
    folder = run.new_attempt().folder
    for name in ("attempt.json", "progress"):
        (folder / name).write_bytes(b"\xff{")
    os.utime(folder / "attempt.json", (1, 1))
    os.utime(folder / "progress", (1, 1))
    assert both(store, run).status == "interrupted"
    (folder / "failure.json").write_text("{")
    assert both(store, run).status == "failed"


def test_stray_files_are_no_runs(store: Store, tmp_path: Path) -> None:
    run = done(store)
    (store.runs_folder / "notes.txt").write_text("x")
    (store.runs_folder / ".removed.x").mkdir()
    (store.runs_folder / "empty").mkdir()
    assert {name: state.status for name, state in states(store)} == {run.name: "done", "empty": "missing"}
