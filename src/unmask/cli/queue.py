"""What the cluster says of the runs of a store: run ids to the scheduler's words."""

from unmask.launch.queue_state import job_states
from unmask.store.experiments import experiment_names, read_jobs
from unmask.store.store import Store


def submitted(store: Store, experiments: list[str] | None = None) -> dict[str, str]:
    """The newest job of every run that was submitted, by run id."""
    return {
        str(line["run"]): str(line["job"])
        for name in experiments or experiment_names(store)
        for line in read_jobs(store, name)
        if "run" in line and "job" in line
    }


def job_words(store: Store, experiments: list[str] | None = None) -> dict[str, str]:
    """SLURM's word for the job of every unfinished run; empty where nothing was submitted."""
    known = submitted(store, experiments)
    folders = {name.rpartition("-")[2]: name for name in store.names()} if known else {}
    jobs = {
        run: job
        for run, job in known.items()
        if run in folders and not (store.runs_folder / folders[run] / "result.json").exists()
    }
    if not jobs:
        return {}
    states = job_states(jobs.values())
    return {run: states[job].state for run, job in jobs.items() if states[job].phase != "vanished"}
