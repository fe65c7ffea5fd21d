"""Nine runs, interruptions and refusals on a real SLURM without accounting."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_lab
from cluster_jobs import ids, signal_job, submit_all, wait_for_end, written
from light_jobs import answered, light_job, light_jobs, result, script_job, seen, wait_until
from slurm_lab import SlurmLab

from unmask.errors import UnmaskError
from unmask.launch import WorkerCommand, cancel, job_states, submit
from unmask.launch.queue_state import jobs_named
from unmask.launch.slurm import last_words, output_of

pytestmark = pytest.mark.xdist_group("slurm")


def overlap(jobs: list[WorkerCommand]) -> int:
    """The largest number of jobs that were under way at the same time."""
    moments = [(result(job)["begin"], 1) for job in jobs] + [(result(job)["end"], -1) for job in jobs]
    under_way = [sum(step for _, step in sorted(moments)[: index + 1]) for index in range(len(moments))]
    return max(under_way)


def test_an_array_of_nine_without_an_exported_environment(
    slurm: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKER", "exported")
    jobs = light_jobs(tmp_path / "a store", 9, items=2, seconds=0.1)
    submitted = submit_all(jobs, tmp_path / "a store" / "slurm", parallel=3, sbatch={"export": "NONE"})
    array = submitted[0].job_id.split("_")[0]
    assert ids(submitted) == [f"{array}_{index}" for index in range(9)]
    states = wait_for_end(submitted)
    assert {state.state for state in states.values()} == {"COMPLETED"}
    assert overlap(jobs) <= 3
    for job in jobs:
        (saw,) = seen(job)
        assert saw["marker"] is None
        assert saw["CUDA_VISIBLE_DEVICES"] in ("0", "1")
        assert answered(job) == ["0", "1"]
        assert job.log_file.read_text() == "item 0\nitem 1\n"


def test_resources_and_set_up_lines_reach_the_worker(slurm: SlurmLab, tmp_path: Path) -> None:
    job = light_job(tmp_path / "run")
    setup = ["export MARKER='from the set-up lines'"]
    (submitted,) = submit_all([job], tmp_path / "slurm", cpus=2, setup=setup, exclude="n1")
    assert re.fullmatch(r"\d+", submitted.job_id)
    wait_for_end([submitted])
    (saw,) = seen(job)
    assert saw["marker"] == "from the set-up lines"
    assert saw["SLURM_CPUS_PER_TASK"] == "2"
    assert saw["SLURMD_NODENAME"] == "n2"
    assert b"#SBATCH --gres=gpu:rtx_6000:1" in written(tmp_path)


def test_warned_runs_stop_go_back_into_the_queue_and_resume(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = light_jobs(tmp_path, 2, items=20, seconds=0.2)
    submitted = submit_all(jobs, tmp_path / "slurm")
    for job, each, name in zip(jobs, submitted, ("USR2", "TERM"), strict=True):
        wait_until(lambda job=job: answered(job), "an answer")
        signal_job(each.job_id, name)
    wait_until(lambda: [len(seen(job)) for job in jobs] == [2, 2], "the second attempts")
    assert {state.state for state in wait_for_end(submitted).values()} == {"COMPLETED"}
    for job in jobs:
        assert sorted(answered(job), key=int) == [str(number) for number in range(20)]
        assert 0 < result(job)["resumed"] < 20


def test_a_run_that_may_not_be_requeued_ends_and_is_resumed_by_the_next_submission(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    job = light_job(tmp_path / "run", items=10, seconds=0.2)
    (first,) = submit_all([job], tmp_path / "slurm", requeue=False)
    wait_until(lambda: answered(job), "an answer")
    signal_job(first.job_id, "USR2")
    assert wait_for_end([first])[first.job_id].state == "FAILED"
    assert not job.done
    (second,) = submit_all([job], tmp_path / "slurm", requeue=False)
    assert wait_for_end([second])[second.job_id].state == "COMPLETED"
    assert result(job)["resumed"] > 0


def test_cancelled_failed_and_unknown_jobs_are_told_apart(slurm: SlurmLab, tmp_path: Path) -> None:
    endless = light_job(tmp_path / "endless", items=1, seconds=3600)
    failing = script_job(tmp_path / "failing", "raise SystemExit(3)")
    submitted = submit_all([endless, failing], tmp_path / "slurm")
    wait_until(lambda: seen(endless), "the start")
    assert job_states([submitted[0].job_id])[submitted[0].job_id].phase == "running"
    (pid,) = [each["pid"] for each in seen(endless)]
    cancel([submitted[0].job_id, "999999"])
    states = wait_for_end(submitted)
    assert [states[job_id].state for job_id in ids(submitted)] == ["CANCELLED", "FAILED"]
    assert job_states(["999999", "999999_3"]).popitem()[1].phase == "vanished"
    assert not endless.done
    wait_until(lambda: pid not in [process.pid for process in slurm.processes()], "the worker to end")


def test_the_end_of_a_worker_that_never_began_is_the_last_word_of_its_job(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    failing = script_job(tmp_path / "failing", "import nothing_of_this_name")
    (submitted,) = submit_all([failing], tmp_path / "slurm")
    wait_for_end([submitted])
    words = last_words(output_of(tmp_path / "slurm", submitted.job_id))
    assert words == "ModuleNotFoundError: No module named 'nothing_of_this_name'"
    dying = submit_all(light_jobs(tmp_path, 2), tmp_path / "slurm", setup=["no-such-program || exit 1"])
    wait_for_end(dying)
    for each in dying:
        assert "no-such-program: command not found" in last_words(output_of(tmp_path / "slurm", each.job_id))


def test_jobs_are_found_by_their_name(slurm: SlurmLab, tmp_path: Path) -> None:
    folder, held = tmp_path / "slurm", {"gpus": 1, "sbatch": {"hold": True}}
    names = iter(["an_array-0a1b", "single-2c3d"])
    commands = light_jobs(tmp_path, 10)
    array, single = submit(commands, folder, held, lambda _commands: next(names))
    ids_by_name = {"an_array-0a1b": array[0].job_id.split("_")[0], "single-2c3d": single[0].job_id}
    assert jobs_named([*ids_by_name, "nobody"]) == ids_by_name
    assert jobs_named(["nobody"]) == {}
    cancel([each.job_id for each in (*array, *single)])


def test_arrays_are_cut_to_the_clusters_limit_and_follow_each_other(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = light_jobs(tmp_path, 11)
    submitted = submit_all(jobs, tmp_path / "slurm", parallel=3, sbatch={"hold": True})
    first, second = dict.fromkeys(job_id.split("_")[0] for job_id in ids(submitted))
    assert ids(submitted)[8:] == [f"{first}_8", f"{second}_0", f"{second}_1"]
    states = job_states(ids(submitted))
    assert {state.phase for state in states.values()} == {"pending"}
    assert f"afterany:{first}" in slurm.ask("squeue", "-h", "-j", second, "-o", "%E")
    assert "0-8%3" in slurm.ask("squeue", "-h", "-j", first, "-o", "%i")
    cancel(ids(submitted))
    assert {state.state for state in wait_for_end(submitted).values()} == {"CANCELLED"}


def test_sbatch_says_why_it_refuses_and_nothing_stays(slurm: SlurmLab, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"^sbatch refused: .*invalid partition.*\.$"):
        submit_all(light_jobs(tmp_path, 2), tmp_path / "slurm", partition="nowhere")
    assert not list((tmp_path / "slurm").iterdir())


def test_a_job_can_submit_jobs(slurm: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_JOB_ID": "5", "SLURM_MEM_PER_CPU": "7", "SLURM_MEM_PER_NODE": "9"}.items():
        monkeypatch.setenv(name, value)
    (submitted,) = submit_all(light_jobs(tmp_path, 1), tmp_path / "slurm", sbatch={"hold": True})
    assert job_states([submitted.job_id])[submitted.job_id].phase == "pending"
    cancel([submitted.job_id])


def test_no_daemon_outlives_the_process_that_started_it(slurm: SlurmLab) -> None:
    lab = subprocess.Popen(
        [sys.executable, slurm_lab.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert lab.stdout is not None
    conf = Path(lab.stdout.readline().decode().split()[1].partition("=")[2])
    assert len(slurm_lab.processes_of(conf)) >= 4
    lab.kill()
    lab.communicate()
    wait_until(lambda: not slurm_lab.processes_of(conf), "the daemons to end")
    shutil.rmtree(conf.parent)


@pytest.mark.slow
def test_a_real_time_limit_requeues_and_resumes(slurm: SlurmLab, tmp_path: Path) -> None:
    job = light_job(tmp_path / "run", items=180, seconds=0.5)
    (submitted,) = submit_all([job], tmp_path / "slurm", minutes=1)
    states = wait_for_end([submitted], seconds=300)
    assert states[submitted.job_id].state == "COMPLETED"
    assert len(seen(job)) > 1
    assert sorted(map(int, answered(job))) == list(range(180))


@pytest.mark.slow
def test_a_preempted_run_goes_back_into_the_queue_and_resumes(slurm: SlurmLab, tmp_path: Path) -> None:
    jobs = light_jobs(tmp_path / "low", 4, items=20, seconds=0.5)
    submitted = submit_all(jobs, tmp_path / "slurm")
    wait_until(lambda: all(map(answered, jobs)), "an answer of each")
    urgent = submit_all([light_job(tmp_path / "urgent")], tmp_path / "slurm", partition="urgent")
    assert wait_for_end(urgent)[urgent[0].job_id].state == "COMPLETED"
    assert {state.state for state in wait_for_end(submitted).values()} == {"COMPLETED"}
    assert sum(len(seen(job)) for job in jobs) == 5
    assert all(sorted(map(int, answered(job))) == list(range(20)) for job in jobs)


@pytest.mark.slow
def test_a_node_that_dies_in_mid_run_costs_nothing(slurm: SlurmLab, tmp_path: Path) -> None:
    job = light_job(tmp_path / "run", items=150, seconds=0.5)
    submit_all([job], tmp_path / "slurm")
    wait_until(lambda: answered(job), "an answer")
    (saw,) = seen(job)
    slurm.kill_node(saw["SLURMD_NODENAME"])
    try:
        wait_until(lambda: len(seen(job)) == 2, "the second attempt", seconds=150)
        assert seen(job)[1]["SLURMD_NODENAME"] != saw["SLURMD_NODENAME"]
        wait_until(lambda: job.done, "the result", seconds=150)
    finally:
        slurm.start_node(saw["SLURMD_NODENAME"])
    assert set(map(int, answered(job))) == set(range(150))
    assert result(job)["attempt"]
    wait_until(
        lambda: slurm.ask("sinfo", "-h", "-N", "-p", "main", "-t", "down", "-o", "%N") == "", "the node"
    )
