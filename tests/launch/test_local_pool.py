"""The pool on one machine: slots, failures, interrupts, and pools that share their jobs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from light_jobs import answered, is_alive, light_job, light_jobs, result, script_job, seen, wait_until

from unmask.launch import Ended, Skipped, Started, Tick, WorkerCommand, WorkerSlot, local_pool

HERE = Path(__file__).parent
CPU = [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
POOL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from light_jobs import light_jobs
from unmask.launch import WorkerSlot, Started, local_pool
jobs = light_jobs(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
try:
    with local_pool(jobs, [WorkerSlot("cpu 0"), WorkerSlot("cpu 1")], pause=0.02) as events:
        for event in events:
            if isinstance(event, Started):
                print(event.pid, flush=True)
except KeyboardInterrupt:
    sys.exit(130)
"""


def run(jobs: list[WorkerCommand], slots: list[WorkerSlot] = CPU) -> list[Started | Ended | Skipped]:
    with local_pool(jobs, slots, pause=0.01) as events:
        return [event for event in events if not isinstance(event, Tick)]


def a_pool(root: Path, count: int, items: int, seconds: float) -> subprocess.Popen[str]:
    """A process of its own that runs a pool and prints its workers' numbers."""
    arguments = [str(HERE), str(root), str(count), str(items), str(seconds)]
    # Under nohup hangups are ignored, and a child would inherit that.
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return subprocess.Popen([sys.executable, "-c", POOL, *arguments], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, inherited)


def two_workers(pool: subprocess.Popen[str]) -> list[int]:
    assert pool.stdout is not None
    return [int(pool.stdout.readline()) for _ in range(2)]


def test_every_job_gets_a_process_a_slot_and_a_log(tmp_path: Path) -> None:
    jobs = light_jobs(tmp_path, 5)
    slots = [
        WorkerSlot("gpu 0", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
        WorkerSlot("gpu 1", {"CUDA_VISIBLE_DEVICES": "GPU-b"}),
    ]
    events = run(jobs, slots)
    ended = {event.command.run: event for event in events if isinstance(event, Ended)}
    assert len(ended) == 5
    assert all(event.code == 0 and event.done for event in ended.values())
    for job in jobs:
        (saw,) = seen(job)
        assert saw["CUDA_VISIBLE_DEVICES"] == ended[job.run].slot.environment["CUDA_VISIBLE_DEVICES"]
        assert job.log_file.read_text() == "item 0\n"
    pids = [event.pid for event in events if isinstance(event, Started)]
    assert sorted(seen(job)[0]["pid"] for job in jobs) == sorted(pids)


def test_a_slot_has_one_run_at_a_time(tmp_path: Path) -> None:
    jobs = light_jobs(tmp_path, 6, items=2, seconds=0.02)
    used: set[str] = set()
    most = 0
    for event in run(jobs):
        if isinstance(event, Started):
            assert event.slot.name not in used
            used.add(event.slot.name)
            most = max(most, len(used))
        elif isinstance(event, Ended):
            used.remove(event.slot.name)
    assert most == 2


def test_a_failure_stops_no_other_run(tmp_path: Path) -> None:
    jobs = [
        script_job(tmp_path / "fails", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"),
        script_job(tmp_path / "dies", "import os; os.kill(os.getpid(), 9)"),
        WorkerCommand("absent", tmp_path / "fails", "absent", ("/no/such/program",)),
        WorkerCommand("nowhere", tmp_path / "nowhere", "nowhere", (sys.executable,)),
        light_job(tmp_path / "works"),
    ]
    ended = {event.command.run: event for event in run(jobs, CPU[:1]) if isinstance(event, Ended)}
    assert {name: event.code for name, event in ended.items()} == {
        "fails": 3,
        "dies": -9,
        "absent": 127,
        "nowhere": None,
        "works": 0,
    }
    assert [name for name, event in ended.items() if event.done] == ["works"]
    assert ended["nowhere"].error is not None
    assert "No such file" in ended["nowhere"].error
    log = (tmp_path / "fails" / "launch.log").read_text()
    assert "no luck" in log
    assert "/no/such/program cannot be started: No such file or directory." in log


def test_a_second_round_appends_to_the_log(tmp_path: Path) -> None:
    job = script_job(tmp_path / "run", "print('hello'); raise SystemExit(1)")
    run([job])
    run([job])
    assert job.log_file.read_text() == "hello\nhello\n"


def test_what_is_done_is_skipped_when_its_turn_comes(tmp_path: Path) -> None:
    first, second = light_jobs(tmp_path, 2)
    with local_pool([first, second], CPU[:1], pause=0.01) as events:
        for event in events:
            if isinstance(event, Started):
                (second.folder / "result.json").write_text("{}")  # as another runner would
            if isinstance(event, Skipped):
                assert event.command == second
    assert seen(first)
    assert not seen(second)


def test_what_another_runner_holds_waits_and_is_taken_when_it_lets_go(tmp_path: Path) -> None:
    held, free = light_jobs(tmp_path, 2)
    order = []
    with local_pool(
        [held, free], CPU[:1], held=lambda job: job == held and not free.done, pause=0.01
    ) as events:
        order = [event.command for event in events if isinstance(event, Started)]
    assert order == [free, held]


def test_leaving_early_stops_the_workers_and_their_children(tmp_path: Path) -> None:
    script = "import os, time; print(os.spawnl(os.P_NOWAIT, '/bin/sleep', 'sleep', '60'), flush=True); time.sleep(60)"
    job = script_job(tmp_path / "run", script)
    pids: list[int] = []
    with local_pool([job], CPU, pause=0.01) as events:
        for event in events:
            if isinstance(event, Started):
                pids.append(event.pid)
            if job.log_file.exists() and job.log_file.read_text().endswith("\n"):
                break
    pids.append(int(job.log_file.read_text()))
    wait_until(lambda: not any(map(is_alive, pids)), "worker and child to end")


def test_children_that_a_worker_leaves_behind_are_taken_away(tmp_path: Path) -> None:
    job = script_job(
        tmp_path / "run", "import os; print(os.spawnl(os.P_NOWAIT, '/bin/sleep', 'sleep', '60'))"
    )
    _started, ended = run([job])
    assert isinstance(ended, Ended)
    assert ended.code == 0
    wait_until(lambda: not is_alive(int(job.log_file.read_text())), "the child to end")


def test_a_worker_that_will_not_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    job = script_job(tmp_path / "run", STUBBORN)
    with pytest.raises(ZeroDivisionError), local_pool([job], CPU, pause=0.01, grace=0.1) as events:  # noqa: PT012
        for event in events:
            if isinstance(event, Started):
                pid = event.pid
            if job.log_file.exists() and "ready" in job.log_file.read_text():
                raise ZeroDivisionError
    assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_no_process_and_a_state_to_resume_from(tmp_path: Path, number: int) -> None:
    with a_pool(tmp_path, 4, items=8, seconds=0.1) as pool:
        workers = two_workers(pool)
        jobs = light_jobs(tmp_path, 4, items=8, seconds=0.0)
        wait_until(lambda: any(map(answered, jobs)), "an answer")
        pool.send_signal(number)
        assert pool.wait(30) == 130
    assert not any(map(is_alive, workers))
    assert not any(job.done for job in jobs)
    kept = {job.run: len(answered(job)) for job in jobs}
    assert sum(kept.values()) > 0
    run(jobs)
    assert all(sorted(answered(job)) == list("01234567") for job in jobs)
    assert {job.run: result(job)["resumed"] for job in jobs} == kept


def test_a_second_interrupt_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    job = script_job(tmp_path / "run", STUBBORN)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), local_pool([job], CPU, pause=0.01, grace=3600) as events:  # noqa: PT012
        for _event in events:
            if job.log_file.exists() and "ready" in job.log_file.read_text():
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGALRM, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with a_pool(tmp_path, 2, items=1, seconds=60) as pool:
        workers = two_workers(pool)
        assert all(psutil.Process(pid).ppid() == pool.pid for pid in workers)
        pool.kill()
    wait_until(lambda: not any(map(is_alive, workers)), "the workers to end")


def test_a_worker_whose_parent_is_gone_before_the_leash_holds_does_not_start(tmp_path: Path) -> None:
    from unmask.launch.processes import LEASH

    touch = [sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')"]
    wrong_parent = "1"
    subprocess.run([sys.executable, "-I", "-S", str(LEASH), wrong_parent, "", "--", *touch], check=False)
    assert not (tmp_path / "started").exists()
    subprocess.run([sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), "", "--", *touch], check=True)
    assert (tmp_path / "started").exists()


def test_two_pools_at_once_publish_every_result_once(tmp_path: Path) -> None:
    with a_pool(tmp_path, 6, 3, 0.02) as one, a_pool(tmp_path, 6, 3, 0.02) as other:
        one.communicate(timeout=60)
        other.communicate(timeout=60)
    assert (one.returncode, other.returncode) == (0, 0)
    for job in light_jobs(tmp_path, 6):
        assert result(job)["attempt"] in {
            file.name.removeprefix("items-") for file in job.folder.glob("items-*")
        }
        assert set(answered(job)) == set("012")
        assert not list(job.folder.glob(".result-*"))
