"""Workers that stay, on the slots of this machine: who takes which run, and what ends a worker."""

from pathlib import Path

import pytest
from staying_jobs import staying_jobs, taken

from unmask.launch import Ended, Skipped, Started, Tick, WorkerCommand, WorkerSlot, local_pool

ONE, TWO = [WorkerSlot("cpu 0")], [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")]


def run(jobs: list[WorkerCommand], slots: list[WorkerSlot] = ONE) -> list[Started | Ended | Skipped]:
    with local_pool(jobs, slots, pause=0.01) as events:
        return [event for event in events if not isinstance(event, Tick)]


def test_one_worker_takes_all_runs_of_a_group(tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, *["work"] * 4)
    events = run(jobs)
    assert taken(jobs) == [0, 0, 0, 0]
    assert [type(event) for event in events] == [Started, Ended] * 4
    assert len({event.pid for event in events if isinstance(event, Started)}) == 1
    assert all((event.done, event.code) == (True, 0) for event in events if isinstance(event, Ended))


def test_slots_share_the_runs_of_a_group(tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, *["work"] * 6)
    run(jobs, TWO)
    assert all(job.done for job in jobs)
    assert set(taken(jobs)) <= {0, 1}


def test_groups_and_runs_without_one_have_workers_of_their_own(tmp_path: Path) -> None:
    one, two = (staying_jobs(tmp_path, "work", "work", group=name) for name in ("one", "two"))
    jobs = [one[0], two[0], one[1], two[1]]
    run(jobs)
    assert taken([*one, *two]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("order", "ends", "takers"),
    [
        ("fail", (3, False), [0, 0, 1]),
        ("die", (-9, False), [0, 0, 1]),
        ("spent", (0, True), [0, 0, 1]),
        ("stop", (0, False), [0, 0, 0]),
        ("unfit", (0, True), [0, 1, 1]),
        ("held", (0, True), [0, 0, 0]),
    ],
)
def test_what_a_run_does_to_its_worker(
    tmp_path: Path, order: str, ends: tuple[int, bool], takers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.launch.local.LOOK_AGAIN", 0.0)
    jobs = staying_jobs(tmp_path, "work", order, "work")
    ended = {event.command.run: event for event in run(jobs) if isinstance(event, Ended)}
    assert len(ended) == 3
    end = ended[jobs[1].run]
    assert ((end.code, end.done), taken(jobs)) == (ends, takers)
    assert jobs[2].done


def test_a_run_that_is_done_when_its_turn_comes_is_not_handed_over(tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, "work", "work", "work")
    with local_pool(jobs, ONE, pause=0.01) as events:
        for event in events:
            if isinstance(event, Started) and event.command == jobs[0]:
                (jobs[1].folder / "result.json").write_text("{}")  # as another runner would
            assert not isinstance(event, Skipped) or event.command == jobs[1]
    assert not (jobs[1].folder / "pids").exists()
    assert taken([jobs[0], jobs[2]]) == [0, 0]


def test_leaving_early_ends_a_worker_that_waits(tmp_path: Path) -> None:
    jobs = staying_jobs(tmp_path, "work", "work")
    with local_pool(jobs, ONE, held=lambda job: job == jobs[1], pause=0.01) as events:
        for event in events:
            if isinstance(event, Ended):
                break
    assert not jobs[1].done
