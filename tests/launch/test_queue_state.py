"""What the client programs print is read right, and their silence is not taken for an answer."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from light_jobs import is_alive, wait_until

from unmask.errors import UnmaskError
from unmask.launch.queue_state import JobState, cancel, job_states, read_states

Programs = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Client programs that print what a test wants."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(**scripts: str) -> None:
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(stat.S_IRWXU)

    return write


def test_lines_of_sacct() -> None:
    table = """\
7_0|COMPLETED|None|n1|0:0
7_1|CANCELLED by 1000|None|n1|0:15
7_2|OUT_OF_MEMORY|None|n2|0:125
7_3|RUNNING|None|n2|0:0
7_[4-6,9%2]|PENDING|JobArrayTaskLimit|None assigned|0:0
8|NODE_FAIL+|None|n1|1:0
something else
"""
    found = read_states(table)
    assert found["7_0"] == JobState("ended", "COMPLETED", "", "n1", "0:0")
    assert found["7_1"].state == "CANCELLED"
    assert found["7_3"].phase == "running"
    assert found["7_9"] == JobState("pending", "PENDING", "JobArrayTaskLimit", "", "0:0")
    assert found["8"].state == "NODE_FAIL"
    assert list(found) == ["7_0", "7_1", "7_2", "7_3", "7_4", "7_5", "7_6", "7_9", "8"]


@given(some.sets(some.integers(0, 40), min_size=1), some.one_of(some.none(), some.integers(1, 50)))
def test_any_set_of_waiting_tasks_is_taken_apart(tasks: set[int], limit: int | None) -> None:
    text = ",".join(map(str, sorted(tasks))) + ("" if limit is None else f"%{limit}")
    assert set(read_states(f"3_[{text}]|PENDING|x||0:0")) == {f"3_{task}" for task in tasks}


def test_steps_of_tasks_are_taken_apart() -> None:
    assert list(read_states("3_[0-6:3]|PENDING|x||")) == ["3_0", "3_3", "3_6"]


def test_squeue_is_asked_where_sacct_fails_or_does_not_know(programs: Programs) -> None:
    programs(sacct="echo accounting is disabled >&2; exit 1", squeue="echo '7_1|TIMEOUT|TimeLimit|n1|'")
    assert job_states(["7_1"])["7_1"] == JobState("ended", "TIMEOUT", "TimeLimit", "n1", "")
    programs(sacct="echo '7_0|COMPLETED|None|n1|0:0'")
    assert [state.state for state in job_states(["7_0", "7_1"]).values()] == ["COMPLETED", "TIMEOUT"]


def test_an_array_that_was_cancelled_while_it_waited_is_one_record(programs: Programs) -> None:
    programs(squeue="echo '7|CANCELLED|JobHeldUser||'; echo '7_2|COMPLETED|None|n1|'")
    assert [state.state for state in job_states(["7_1", "7_2"]).values()] == ["CANCELLED", "COMPLETED"]


def test_many_jobs_take_one_call_and_arrays_one_id(programs: Programs, tmp_path: Path) -> None:
    programs(sacct=f'echo "$@" >> {tmp_path}/calls; exit 1', squeue=f'echo "$@" >> {tmp_path}/calls')
    job_states([*(f"7_{task}" for task in range(500)), "8", "9"])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.rpartition("-j ")[2] for call in calls] == ["7,8,9", "7,8,9"]


def test_a_forgotten_job_has_vanished_but_a_silent_controller_says_nothing(programs: Programs) -> None:
    programs(squeue="echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
    assert job_states(["7"])["7"].phase == "vanished"
    programs(squeue="exit 0")
    assert job_states(["7"])["7"].phase == "vanished"
    programs(squeue="echo Unable to contact slurm controller >&2; exit 1")
    assert job_states(["7"])["7"].phase == "unknown"
    programs(squeue="exec /bin/sleep 60", sacct="exec /bin/sleep 60")
    assert job_states(["7"], seconds=0.2)["7"].phase == "unknown"


def test_a_script_that_hangs_is_given_up_with_what_it_started(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "pid of what squeue started"
    programs(squeue=f"/bin/sleep 600 & echo $! > '{file}'; wait", sacct="exit 1")
    assert job_states(["7"], seconds=3)["7"].phase == "unknown"
    # A process that is being killed may be seen for a moment longer.
    wait_until(lambda: not is_alive(int(file.read_text())), "the end of what squeue started")


def test_one_forgotten_job_says_nothing_of_the_others(programs: Programs) -> None:
    programs(
        squeue="""for ids; do :; done
case $ids in
8) echo '8|RUNNING|None|n1|' ;;
9) echo Unable to contact slurm controller >&2; exit 1 ;;
*) echo slurm_load_jobs error: Invalid job id specified >&2; exit 1 ;;
esac"""
    )
    assert [state.phase for state in job_states(["7", "8"]).values()] == ["vanished", "running"]
    assert {state.phase for state in job_states(["7", "8", "9"]).values()} == {"unknown"}


def test_without_slurm_nothing_is_known_and_nothing_can_be_cancelled(programs: Programs) -> None:
    assert job_states(["7", "7_1"]) == dict.fromkeys(["7", "7_1"], JobState("unknown", "UNKNOWN"))
    assert job_states([]) == {}
    with pytest.raises(UnmaskError, match="login node"):
        cancel(["7"])
    cancel([])


def test_a_job_of_another_user_cannot_be_cancelled(programs: Programs) -> None:
    programs(scancel="echo scancel: error: Kill job error on job id 7: Access denied >&2; exit 1")
    with pytest.raises(UnmaskError, match="Access denied"):
        cancel(["7"])


def test_the_users_filters_do_not_hide_jobs(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "elsewhere")
    programs(squeue='echo "7|RUNNING|${SQUEUE_PARTITION:-none}|n1|"')
    assert job_states(["7"])["7"].reason == "none"
