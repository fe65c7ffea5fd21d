"""Twelve kinds of secrets are planted; neither the store nor logs, reports, exports or SLURM's own files hold one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_jobs import submit_all, wait_for_end, written
from light_jobs import light_job, script_job, seen, wait_until
from slurm_lab import SlurmLab

from unmask.launch import find_slots, local_pool
from unmask.store.experiments import Member, write_experiment
from unmask.store.files import publish_once, write_atomically
from unmask.store.foreign import import_tree
from unmask.store.store import Store

VARIABLES = {
    "HF_TOKEN": "plain-words-for-the-hub",
    "WANDB_API_KEY": "0123456789abcdef0123",
    "AWS_SECRET_ACCESS_KEY": "aB/cD+eF12345678",
    "DB_PASSWORD": 'with "quotes" and ümlaut',
    "CLIENT_SECRET": "another,one;with&signs",
    "GOOGLE_CREDENTIALS": '{"private": "line one of it",\n "key": "line two of it"}',
}
"""Secrets by the name of their variable: their values are found by nothing else."""
ADDRESS = "https://somebody:word-in-an-address@index.example/simple"
TEXTS = {
    "ghp_PlantedPlantedPlanted0": "pushed with ghp_PlantedPlantedPlanted0",
    "sk-planted-planted-planted": "openai: sk-planted-planted-planted",
    "bearer-planted-0001": "Authorization: Bearer bearer-planted-0001",
    "option-planted-0001": "tool --api-key option-planted-0001 --limit 5",
    "named planted 0001": '{"session_password": "named planted 0001"}',
    "word-in-an-address": f"cannot reach {ADDRESS}",
}
"""Secrets by their shape or by the name before them, each in a text that holds it."""
PLANTED = [part for value in VARIABLES.values() for part in value.splitlines()] + list(TEXTS)
ALL = "\n".join([*VARIABLES.values(), *TEXTS.values()])
PRINTING = "import os, pathlib; print(*os.environ.values(), pathlib.Path(os.environ['LEAKS']).read_text(), sep='\\n')"


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_INDEX_URL", ADDRESS)
    folder = tmp_path.with_name(f"{tmp_path.name}-leaks")
    folder.mkdir()
    (folder / "leaks").write_text("\n".join(TEXTS.values()))
    (folder / "leaky.py").write_text(POLICY)
    monkeypatch.setenv("LEAKS", str(folder / "leaks"))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def found_in(*folders: Path) -> list[str]:
    """The planted secrets that files below these folders hold, plain or as JSON spells them."""
    content = b"".join(map(written, folders))
    spelled = {secret: (secret, secret.replace('"', '\\"'), ascii(secret)[1:-1]) for secret in PLANTED}
    return [secret for secret, forms in spelled.items() if any(form.encode() in content for form in forms)]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(ALL)
    assert sorted(found_in(tmp_path)) == sorted(PLANTED)
    assert len(VARIABLES) + len(TEXTS) == 12


def test_whoever_writes_a_file_writes_no_secret(tmp_path: Path) -> None:
    write_atomically(tmp_path / "text", ALL)
    publish_once(tmp_path / "record.json", {"reason": ALL, "variables": VARIABLES})
    store = Store(tmp_path / "store")
    member = Member(configuration="a", task="t", limit=None, id="0" * 16, folder="f", kind="accuracy")
    write_experiment(store, "planted", tmp_path / "recipe.toml", ALL, [member], "a")
    assert found_in(tmp_path) == []


def test_an_import_that_holds_a_secret_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "from" / "gsm8k" / "k1"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text('{"model_args": {"session_password": "named planted 0001"}}')
    imported = import_tree(tmp_path / "from", Store(tmp_path / "store"), "seed", lambda _task: None)
    assert "looks like a secret" in imported.problems[0].says
    assert found_in(tmp_path / "store") == []


def test_a_workers_log_and_traceback_hold_no_secret(tmp_path: Path) -> None:
    script = (
        f"{PRINTING}\nimport sys; sys.stdout.flush(); os.write(2, b'last line'); raise ValueError(os.environ)"
    )
    job = script_job(tmp_path / "run", script)
    with local_pool([job], find_slots(1)) as events:
        for _event in events:
            pass
    log = job.log_file.read_text()
    assert "last line" in log
    assert "Traceback" in log
    assert found_in(tmp_path) == []


def test_the_last_words_of_a_worker_that_is_killed_are_kept(tmp_path: Path) -> None:
    script = "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    job = script_job(tmp_path / "run", script)
    with local_pool([job], find_slots(1)) as events:
        for _event in events:
            pass
    assert job.log_file.read_text() == "last words\n"


@pytest.mark.xdist_group("slurm")
def test_slurm_is_handed_no_secret(slurm: SlurmLab, tmp_path: Path) -> None:
    printing, held = script_job(tmp_path / "printing", PRINTING), light_job(tmp_path / "held")
    wait_for_end(submit_all([printing], tmp_path / "slurm"))
    submit_all([held], tmp_path / "slurm", sbatch={"hold": True})
    assert "pushed with (hidden)" in printing.log_file.read_text()
    assert found_in(tmp_path, slurm.layout.root) == []


@pytest.mark.xdist_group("slurm")
def test_a_variable_that_is_asked_for_is_handed_over(
    slurm: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a value that SLURM may keep")
    jobs = [light_job(tmp_path / name) for name in ("without", "with")]
    for job, export in zip(jobs, ("ALL", "ALL,HF_TOKEN"), strict=True):
        wait_for_end(submit_all([job], tmp_path / "slurm", sbatch={"export": export}))
    assert [saw["secret"] for job in jobs for saw in seen(job)] == [False, True]
    assert found_in(tmp_path) == []


POLICY = f"""
{PRINTING.replace("; ", chr(10))}
from unmask.engine.step_plan import FULL
class Leaky:
    def __init__(self, fail=False):
        self.fail = fail
    def plan(self, view):
        if self.fail:
            raise ValueError(pathlib.Path(os.environ['LEAKS']).read_text(), *os.environ.values())
        return FULL
"""
RECIPE = """
name = "planted"
hypothesis = "No secret is written."
[model]
checkpoint = "embedded"
[decode]
max_new_tokens = 16
[[tasks]]
name = "unmask_arith_20"
limit = 2
[[configurations]]
name = "leaky"
policy = { kind = "custom", target = "leaky:Leaky" }
[[configurations]]
name = "failing"
policy = { kind = "custom", target = "leaky:Leaky", options = { fail = true } }
[success]
task = "unmask_arith_20"
control = "leaky"
candidates = ["failing"]
by = "work"
confirm = { gain = 1.2, drop = 0.05 }
[until_decided]
rows = 1
[resources]
cpus = 1
memory_gb = 2
minutes = 10
"""


def unmask(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "unmask", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize("place", ["local", "slurm"])
def test_a_sweep_leaves_no_secret_anywhere(slurm: SlurmLab, tmp_path: Path, place: str) -> None:
    recipe, store = tmp_path / "recipe.toml", tmp_path / "store"
    recipe.write_text(RECIPE)
    told = unmask("run", recipe, "--on", place, "--store", store)
    wait_until(
        lambda: len([*store.glob("runs/*/result.json"), *store.glob("runs/*/attempts/*/failure.json")]) == 2,
        "both ends",
        300,
    )
    told += unmask("status", "--store", store) + unmask("check", "--store", store)
    told += unmask("report", "planted", "--store", store)
    told += unmask("export", "planted", "--store", store, "--output", tmp_path / "table.csv")
    told += unmask("export", "planted", "--store", store, "--output", tmp_path / "tree")
    for folder in store.glob("runs/*"):
        told += unmask("logs", folder.name, "--store", store)
    assert told.count("pushed with (hidden)") >= 2
    assert list(store.glob("runs/*/attempts/*/rows.jsonl"))
    assert (store / "workers").is_dir()
    (tmp_path / "told").write_text(told)
    wait_until(lambda: not slurm.ask("squeue", "-h"), "an empty queue")
    assert found_in(tmp_path, slurm.layout.root) == []


def test_a_variable_with_a_secret_in_its_value_goes_too() -> None:
    from unmask.store.redaction import public_environment

    assert not {*VARIABLES, "PIP_INDEX_URL"} & public_environment(os.environ).keys()
    assert "PATH" in public_environment(os.environ)
