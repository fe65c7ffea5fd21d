"""The whole way with real workers on the embedded model: new, plan, run, and a run that was interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from unmask.cli import app
from unmask.spec.lock import read_lock
from unmask.store import RunFolder, Store
from unmask.store.computation import Computation
from unmask.store.experiments import read_experiment
from unmask.store.state import state_of
from unmask.version import __version__

ROWS = 12
TOKEN = "hf_not_to_be_written_down"
CHANGES = (
    ("keep = [0.0, 0.25]", "keep = [0.0]"),
    ("prompts = 4\nrepeats = 6", "prompts = 1\nrepeats = 2"),
    ("[[tasks]]", "[evaluation]\nbatch_size = 1\n\n[[tasks]]"),
)
LEFT_OUT = (
    ("[[grid]]  # axes are multiplied", "[[grid]]  # other axes"),
    ("[[configurations]]  # unit", "[[timing]]"),
)
"""Parts of the template, each by its beginning and by what comes behind it."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_TOKEN": TOKEN, "TQDM_DISABLE": "1"}


def unmask(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")


@dataclass(frozen=True)
class Swept:
    """A sweep that ran undisturbed."""

    recipe: Path
    store: Store
    planned: Result
    ran: Result

    def folder(self, configuration: str, store: Store | None = None) -> RunFolder:
        experiment = read_experiment(store or self.store, "real")
        assert experiment is not None
        (member,) = [one for one in experiment.members if one.configuration == configuration]
        return RunFolder((store or self.store).runs_folder / member.folder)

    def result(self, configuration: str, store: Store | None = None) -> dict[str, Any]:
        found = self.folder(configuration, store).result()
        assert found is not None
        fields: dict[str, Any] = msgspec.to_builtins(found)
        return fields


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    place = tmp_path_factory.mktemp("sweep")
    recipe, store = place / "recipes" / "real", Store(place / "results")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        assert unmask("new", "real", "--folder", recipe.parent).exit_code == 0
        text = (recipe / "recipe.toml").read_text()
        for old, new in CHANGES:
            assert old in text
            text = text.replace(old, new)
        for beginning, behind in LEFT_OUT:
            text = text[: text.index(beginning)] + text[text.index(behind) :]
        (recipe / "recipe.toml").write_text(text)
        planned = unmask("plan", recipe, "--limit", ROWS, "--store", store.root)
        ran = unmask("run", recipe, "--limit", ROWS, "--store", store.root)
    return Swept(recipe, store, planned, ran)


def test_the_plan_made_the_lock_and_showed_three_runs(swept: Swept) -> None:
    assert swept.planned.exit_code == 0, swept.planned.output
    assert "3 runs: 3 missing." in swept.planned.stdout
    lock = read_lock(swept.recipe / "recipe.lock")
    assert (lock.model, lock.sizes) == ("embedded", {"unmask_arith": 600})
    assert swept.result("baseline")["identity"]["weights"] == lock.weights


def test_everything_ran_and_is_shown(swept: Swept) -> None:
    assert swept.ran.exit_code == 0, swept.ran.output
    assert "real: 3 done" in swept.ran.stdout
    assert f"unmask_arith_limit_{ROWS} trim_0.0" in swept.ran.stdout
    experiment = read_experiment(swept.store, "real")
    assert experiment is not None
    assert [one.configuration for one in experiment.members] == ["trim_0.0", "baseline", "timing"]


def test_a_second_run_finds_nothing_to_do(swept: Swept) -> None:
    before = {name: swept.folder(name).attempts() for name in ("baseline", "trim_0.0", "timing")}
    again = unmask("run", swept.recipe, "--limit", ROWS, "--store", swept.store.root)
    assert again.exit_code == 0
    assert "Nothing to do: 3 done." in again.stdout
    for name, attempts in before.items():
        assert (
            [one.number for one in swept.folder(name).attempts()]
            == [one.number for one in attempts]
            == ["0001"]
        )


@pytest.mark.parametrize("name", ["baseline", "trim_0.0"])
def test_a_result_is_whole(swept: Swept, name: str) -> None:
    folder, result = swept.folder(name), swept.result(name)
    assert (result["rows"], result["rows_of_the_set"], result["attempt"]) == (ROWS, 600, "0001")
    assert result["metric"] == "exact_match,strict-match"
    assert result["value"] == result["metrics"]["exact_match,strict-match"]
    assert 0.5 < result["value"] <= 1
    assert (result["answers"]["count"], result["answers"]["resumed"], result["answers"]["truncated"]) == (
        ROWS,
        0,
        0,
    )
    assert result["effect"]["generation"]["requests"] == ROWS
    assert (result["effect"]["generation"]["reuse_fraction"] > 0) == (name == "trim_0.0")
    assert result["environment"]["threads"] == 1
    assert result["environment"]["batch_size"] == 1
    assert set(result["environment"]["layouts"]) == {"qkv", "attention_out", "gate_up", "down", "head"}
    outside = result["speed"]["seconds_outside_the_clock"]
    assert set(outside) == {"tasks", "loading", "tokenising", "prompts_and_checking"}
    assert 0 < sum(outside.values()) < result["seconds"]
    assert outside["loading"] > 0
    attempt = folder.attempts()[0]
    environment = result["environment"]
    assert attempt.computation() == Computation(
        unmask=__version__,
        commit=environment["commit"],
        diff_sha256=environment["diff_sha256"],
        code_sha256=environment["code_sha256"],
        torch=version("torch"),
        device="cpu",
        dtype="float32",
    )
    samples = list(attempt.samples())
    assert [one.id for one in samples] == [f"unmask_arith/{number}" for number in range(ROWS)]
    assert sum(one.correct for one in samples) / ROWS == pytest.approx(result["value"])
    assert sum(one.tokens for one in samples) == result["answers"]["tokens"]
    assert {one.finish for one in samples} == {"stop"}
    assert len(list(attempt.answers())) == ROWS
    assert attempt.reached() == (ROWS, ROWS)
    assert "is done." in attempt.log.read_text()
    summary = json.loads((folder.folder / "summary.json").read_text())
    assert (summary["task"], summary["config"], summary["accuracy"]) == (
        "unmask_arith",
        name,
        result["value"],
    )


def test_the_timing_run_has_both_by_turns(swept: Swept) -> None:
    result = swept.result("timing")
    assert (result["kind"], result["control"], result["path"]) == ("timing", "baseline", "generation")
    assert (result["prompts"], result["repeats"]) == (1, 2)
    measured = result["configurations"]
    assert set(measured) == {"baseline", "trim_0.0"}
    assert measured["baseline"]["speedup"]["median"] == 1.0
    assert all(len(one["seconds"]) == 2 for one in measured.values())
    assert measured["trim_0.0"]["effect"]["reuse_fraction"] > 0
    assert not (swept.folder("timing").folder / "summary.json").exists()


def test_no_token_is_written_down(swept: Swept) -> None:
    files = [file for file in swept.store.root.rglob("*") if file.is_file()]
    assert len(files) > 10
    assert [file for file in files if TOKEN.encode() in file.read_bytes()] == []


def interrupted(swept: Swept, store: Store) -> subprocess.CompletedProcess[str]:
    """A run that gets Ctrl-C as soon as its first answer is on disk."""
    command = [sys.executable, "-m", "unmask", "run", str(swept.recipe), "--store", str(store.root)]
    command += ["--limit", str(ROWS), "--config", "trim_0.0"]
    with subprocess.Popen(
        command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not any(file.stat().st_size for file in store.runs_folder.glob("*/attempts/*/answers.jsonl")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def test_an_interrupted_run_goes_on_and_ends_as_an_undisturbed_one(swept: Swept, tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    stopped = interrupted(swept, store)
    assert stopped.returncode == 130
    assert stopped.stderr == "Interrupted.\n"
    folder = swept.folder("trim_0.0", store)
    assert state_of(folder).status == "interrupted"
    assert folder.result() is None
    kept = len(folder.answers())
    assert 0 < kept < ROWS
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        again = unmask("run", swept.recipe, "--store", store.root, "--limit", ROWS, "--config", "trim_0.0")
    assert again.exit_code == 0, again.output
    resumed, whole = swept.result("trim_0.0", store), swept.result("trim_0.0")
    assert resumed["attempt"] == "0002"
    assert resumed["answers"]["resumed"] == kept
    assert {**resumed["answers"], "resumed": 0} == whole["answers"]
    for part in ("id", "identity", "metric", "value", "stderr", "rows", "metrics", "effect"):
        assert resumed[part] == whole[part], part
    assert resumed["speed"]["decoding"]["requests"] == ROWS - kept
    rows, expected = (list(one.attempts()[-1].samples()) for one in (folder, swept.folder("trim_0.0")))
    assert rows == expected
    keys = [line.key for attempt in folder.attempts() for line in attempt.answers()]
    assert len(keys) == len(set(keys)) == ROWS


def executed_again(swept: Swept, store: Store, **change: str) -> tuple[dict[str, Any], str]:
    """The result of a run whose earlier attempt has all answers and was changed in the kind of its computation."""
    whole = swept.folder("trim_0.0")
    folder = store.runs_folder / whole.name
    shutil.copytree(whole.folder, folder)
    (folder / "result.json").unlink()
    run = RunFolder(folder)
    (first,) = run.attempts()
    kind = first.computation()
    assert kind is not None
    first.compute_as(msgspec.structs.replace(kind, **change))
    done = subprocess.run(
        [sys.executable, "-m", "unmask", "run-one", str(folder), "--keep-output"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.to_builtins(run.result()), done.stdout


def test_answers_of_another_kind_of_computation_are_computed_again(swept: Swept, tmp_path: Path) -> None:
    whole = swept.result("trim_0.0")
    found, said = executed_again(swept, Store(tmp_path), torch="1.0")
    assert (found["attempt"], found["answers"]["resumed"]) == ("0002", 0)
    assert found["answers"]["computed_again"] == ROWS
    assert found["answers"]["sha256"] == whole["answers"]["sha256"]
    assert found["speed"]["decoding"]["requests"] == ROWS
    assert (
        f"another kind of computation (torch 1.0 -> {version('torch')}) are not taken over: {ROWS}." in said
    )


def test_the_number_format_that_the_first_worker_chose_holds_for_the_run(
    swept: Swept, tmp_path: Path
) -> None:
    """A worker on this machine would choose float32, but the answers that are there were computed in bfloat16."""
    assert swept.result("trim_0.0")["identity"]["dtype"] is None
    found, said = executed_again(swept, Store(tmp_path), dtype="bfloat16")
    assert found["environment"]["dtype"] == "bfloat16"
    assert (found["answers"]["resumed"], found["answers"]["computed_again"]) == (ROWS, 0)
    assert "another kind" not in said
