"""When a run may end: judged from files, the same for a worker, for `unmask run` and for a table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unmask.analysis.stopping import EVERYONE, fate, fate_of
from unmask.spec.conduct import answer_order
from unmask.store import RunFolder, Store
from unmask.store.attempt import Computation, Sample
from unmask.store.result import AccuracyResult
from unmask.store.run_folder import Terms, WorkerSettings
from unmask.store.state import SubmittedJob, state_of
from unmask.store.stopping import AnsweredRow, add_rows, rows_of, stop, stopped

ROWS = 200
TASK = {"name": "arith", "limit": None, "rows": {"arith": ROWS}}
ORDER = answer_order(TASK, 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "results")


def identity(name: str) -> dict[str, Any]:
    return {"schema": 2, "kind": "accuracy", "task": TASK, "policy": {"kind": name}, "decode": {}}


def a_run(store: Store, name: str) -> RunFolder:
    return store.run(identity(name), WorkerSettings())


def answer(run: RunFolder, values: Iterable[float], kind: str = "cpu") -> None:
    """An attempt that has scored the first rows of the order with these values."""
    attempt = run.new_attempt()
    attempt.compute_as(Computation(device=kind))
    add_rows(attempt, [AnsweredRow(row=row, value=value) for row, value in zip(ORDER, values, strict=False)])


def terms(control: RunFolder, *candidates: RunFolder, bounds: tuple[float, ...] = (0.05,)) -> Terms:
    return Terms(
        control=control.name,
        candidates=tuple(one.name for one in candidates),
        bounds=bounds,
        comparisons=1,
        rows=20,
    )


def test_a_candidate_may_end_when_its_loss_is_certain(store: Store) -> None:
    control, bad, good = (a_run(store, name) for name in ("control", "bad", "good"))
    agreed = terms(control, bad, good)
    answer(bad, [0.0] * 40)
    assert fate(bad, agreed) is None, "nothing is known of the control"
    answer(control, [1.0] * 120)
    assert str(fate(bad, agreed)).startswith("its loss is certainly more than 5 points (")
    assert "by 40 rows)" in str(fate(bad, agreed))
    answer(good, [1.0] * 20)
    assert fate(good, agreed) is None
    answer(good, [1.0] * 120)
    assert str(fate(good, agreed)).startswith("its loss is certainly less than 5 points (")


def test_all_bounds_must_be_known(store: Store) -> None:
    control, bad = a_run(store, "control"), a_run(store, "bad")
    answer(control, [1.0] * 100)
    answer(bad, [0.0, 1.0] * 50)
    assert fate(bad, terms(control, bad)) is not None
    assert fate(bad, terms(control, bad, bounds=(0.05, 0.5))) is None
    both = fate(bad, terms(control, bad, bounds=(0.05, 0.9)))
    assert "more than 5 points and less than 90 points" in str(both)


def test_the_control_goes_on_until_every_candidate_is_decided(store: Store) -> None:
    control, bad, good = (a_run(store, name) for name in ("control", "bad", "good"))
    agreed = terms(control, bad, good)
    answer(control, [1.0] * 120)
    answer(bad, [0.0] * 40)
    assert fate(control, agreed) is None
    answer(good, [1.0] * 120)
    assert fate(control, agreed) == EVERYONE
    assert fate(control, terms(control)) is None


def test_what_was_certain_once_stays_certain_with_more_rows_of_the_control(store: Store) -> None:
    """A decision must not depend on how far the other one happens to be when it is looked at again."""
    control, other = a_run(store, "control"), a_run(store, "other")
    agreed = terms(control, other)
    answer(other, [0.0] * 40 + [1.0] * 160)
    answer(control, [1.0] * 40)
    early = fate(other, agreed)
    assert early is not None
    answer(control, [1.0] * 200)
    assert fate(other, agreed) is not None


def test_only_the_rows_that_both_have_in_the_order_count(store: Store) -> None:
    control, bad = a_run(store, "control"), a_run(store, "bad")
    answer(control, [1.0] * 100)
    attempt = bad.new_attempt()
    attempt.compute_as(Computation(device="cpu"))
    add_rows(attempt, [AnsweredRow(row=row, value=0.0) for row in ORDER[1:100]])
    assert fate(bad, terms(control, bad)) is None


def test_rows_of_another_kind_of_computation_do_not_count(store: Store) -> None:
    run = a_run(store, "one")
    answer(run, [1.0] * 50, "cuda")
    answer(run, [0.0] * 20, "cpu")
    rows = rows_of(run)
    assert set(rows) == set(ORDER[:20])
    assert {row.value for row in rows.values()} == {0.0}


def test_the_rows_of_a_done_run_are_its_samples(store: Store) -> None:
    run = a_run(store, "one")
    attempt = run.new_attempt()
    attempt.write_samples(
        Sample(id=row, correct=float(place % 2), tokens=7) for place, row in enumerate(ORDER)
    )
    fields = {
        "kind": "accuracy",
        "id": run.id,
        "attempt": "0001",
        "task": "arith",
        "metric": "m",
        "value": 0.5,
    }
    result = msgspec.convert({**fields, "rows": ROWS, "identity": run.identity}, AccuracyResult)
    assert run.publish(result)
    rows = rows_of(run)
    assert len(rows) == ROWS
    assert (rows[ORDER[1]].value, rows[ORDER[1]].tokens) == (1.0, 7)


def test_a_retracted_result_decides_nothing(store: Store) -> None:
    control, bad = a_run(store, "control"), a_run(store, "bad")
    answer(control, [1.0] * 100)
    answer(bad, [0.0] * 100)
    fields = {"kind": "accuracy", "id": control.id, "task": "arith", "metric": "m", "value": 1.0}
    result = {**fields, "attempt": "0001", "rows": ROWS, "identity": control.identity}
    assert control.publish(msgspec.convert(result, AccuracyResult))
    assert fate(bad, terms(control, bad)) is not None
    control.retract("the wrong model was loaded")
    assert fate(bad, terms(control, bad)) is None
    control.take_back_retraction()
    assert fate(bad, terms(control, bad)) is not None


def test_a_damaged_neighbour_decides_nothing(store: Store) -> None:
    control, bad = a_run(store, "control"), a_run(store, "bad")
    answer(control, [1.0] * 100)
    answer(bad, [0.0] * 100)
    file = control.attempts()[-1].folder / "rows.jsonl"
    file.write_text("no row\n" + file.read_text())
    assert fate(bad, terms(control, bad)) is None
    file.write_text('{"row": "arith/0", "value": 1.0')  # a torn line, as a kill leaves it
    assert rows_of(control) == {}


def test_a_worker_asks_by_the_terms_that_it_was_started_with(store: Store) -> None:
    control, bad = a_run(store, "control"), a_run(store, "bad")
    answer(control, [1.0] * 100)
    answer(bad, [0.0] * 100)
    assert fate_of(bad) is None
    bad.set_worker(WorkerSettings(until_decided=terms(control, bad)))
    assert fate_of(RunFolder(bad.folder)) is not None


def test_a_stopped_run_says_so_until_somebody_goes_on(store: Store) -> None:
    run = a_run(store, "one")
    answer(run, [1.0] * 40)
    attempt = run.attempts()[-1]
    attempt.progress(40, ROWS)
    stop(attempt, 40, ROWS, 2, "its fate is certain")
    end = stopped(attempt)
    assert end is not None
    assert (end.rows, end.of, end.round) == (40, ROWS, 2)
    state = state_of(run)
    assert (state.status, state.reason) == ("stopped", "40 of 200 rows: its fate is certain")
    assert state_of(run, {run.id: SubmittedJob("77", "PENDING")}).status == "pending"
    assert state_of(run, {run.id: SubmittedJob("77", "COMPLETED")}).status == "stopped"
    (attempt.folder / "stopped.json").write_text("{")
    assert stopped(attempt) is None
    stop(attempt, 40, ROWS, 2, "its fate is certain")
    run.new_attempt()
    assert state_of(run).status == "running"
