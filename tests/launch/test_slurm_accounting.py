"""The same with accounting: sacct knows jobs that the controller has forgotten."""

import shutil
from pathlib import Path

import pytest
from cluster_jobs import ids, signal_job, submit_all, wait_for_end
from light_jobs import answered, light_job, light_jobs, script_job, seen, wait_until
from slurm_lab import SlurmLab

from unmask.launch import cancel, job_states

pytestmark = pytest.mark.xdist_group("slurm")


def test_states_come_from_accounting(
    slurm_with_accounting: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = light_job(tmp_path / "resumed", items=10, seconds=0.2)
    endless = light_job(tmp_path / "endless", items=1, seconds=3600)
    failing = script_job(tmp_path / "failing", "raise SystemExit(3)")
    submitted = submit_all([resumed, endless, failing], tmp_path / "slurm")
    wait_until(lambda: answered(resumed), "an answer")
    signal_job(submitted[0].job_id, "USR2")
    wait_until(lambda: seen(endless), "the start")
    cancel([submitted[1].job_id])
    wait_for_end(submitted)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", _only("sacct", tmp_path / "programs"))
        expected = ["COMPLETED", "CANCELLED", "FAILED"]
        wait_until(lambda: _states(ids(submitted)) == expected, "accounting to catch up")
        assert job_states(ids(submitted))[submitted[2].job_id].exit_code == "3:0"


def test_arrays_that_wait_are_taken_apart(
    slurm_with_accounting: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = submit_all(light_jobs(tmp_path, 9), tmp_path / "slurm", sbatch={"hold": True})
    with monkeypatch.context() as patch:
        patch.setenv("PATH", _only("sacct", tmp_path / "programs"))
        wait_until(lambda: set(_states(ids(submitted))) == {"PENDING"}, "accounting to catch up")
    cancel(ids(submitted))
    wait_for_end(submitted)


def _states(job_ids: list[str]) -> list[str]:
    return [state.state for state in job_states(job_ids).values()]


def _only(program: str, folder: Path) -> str:
    """A PATH with one program: as if the controller had forgotten the jobs."""
    folder.mkdir()
    where = shutil.which(program)
    assert where is not None
    (folder / program).symlink_to(where)
    return str(folder)
