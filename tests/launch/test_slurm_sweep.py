"""A real sweep with real workers on a real SLURM: submitted, watched, cancelled and resumed by the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from light_jobs import wait_until
from slurm_lab import SlurmLab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]
RECIPE = """
name = "on_slurm"
hypothesis = "A sweep runs alike on a laptop and on SLURM."
[model]
checkpoint = "embedded"
dtype = "float32"
[decode]
max_new_tokens = 96
[[tasks]]
name = "unmask_arith_20"
limit = 4
[[configurations]]
name = "baseline"
[[configurations]]
name = "trim"
policy = { kind = "trim" }
[resources]
gpus = 1
gpu_type = "rtx_6000"
cpus = 1
memory_gb = 1
minutes = 10
"""


def unmask(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "unmask", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


DYING = RECIPE.replace("minutes = 10", 'minutes = 10\nsetup = ["module load cuda || exit 1"]')


def test_a_sweep_whose_jobs_die_in_their_set_up_says_why_and_is_not_submitted_again(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    recipe, store = tmp_path / "recipe.toml", tmp_path / "store"
    recipe.write_text(DYING)
    run = ("run", str(recipe), "--on", "slurm", "--store", str(store))
    assert re.search(r"2 runs submitted as job \d+", unmask(*run))
    wait_until(lambda: all(one["status"] == "failed" for one in states(store).values()), "the end", 60)
    for one in states(store).values():
        assert re.match(
            r"job \d+_\d ended \(FAILED\) before its worker began: .*module: command", one["reason"]
        )
        assert "module: command not found" in unmask("logs", one["id"], "--store", str(store))
    again = unmask(*run, code=1)
    assert "submitted" not in again
    assert again.count("module: command not found") == 2
    recipe.write_text(RECIPE)
    assert "2 runs submitted" in unmask(*run, "--retry-failed")
    unmask("cancel", "on_slurm", "--store", str(store))


def states(store: Path) -> dict[str, dict[str, Any]]:
    (experiment,) = json.loads(unmask("status", "--json", "--store", str(store)))
    return {f"{run['configuration']} {run['limit']}": run for run in experiment["runs"]}


def test_a_sweep_is_submitted_cancelled_and_resumed(slurm: SlurmLab, tmp_path: Path) -> None:
    recipe, store = tmp_path / "recipe.toml", tmp_path / "store"
    recipe.write_text(RECIPE)
    run = ("run", str(recipe), "--on", "slurm", "--store", str(store))
    assert re.search(r"2 runs submitted as job \d+", unmask(*run))
    assert {one["status"] for one in states(store).values()} <= {"pending", "running", "done"}
    unmask("cancel", "on_slurm", "--store", str(store))
    wait_until(
        lambda: all(one["status"] not in ("pending", "running") for one in states(store).values()),
        "the end",
        60,
    )
    told = unmask(*run, "--canary", "2")
    assert "The canary is sound." in told
    assert told.count("2 runs submitted") == 2
    wait_until(lambda: all(one["status"] == "done" for one in states(store).values()), "results", 400)
    assert "Nothing to do" in unmask(*run)
    results = [json.loads(file.read_text()) for file in store.glob("runs/*/result.json")]
    assert sorted(result["rows"] for result in results) == [2, 2, 4, 4]
    for result in results:
        assert result["environment"]["slurm"]["job"]
