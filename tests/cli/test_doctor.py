"""`unmask doctor`: every combination of GPU, driver and build gets its sentence, and no token is shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from unmask.cli.doctor import BUILDS, DRIVERS, GpuFacts, doctor, judge_gpu
from unmask.evaluation import sandbox

NEW = ("sm_75", "sm_80", "sm_90", "sm_120", "compute_120")
OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_90")


def facts(
    name: str, capability: tuple[int, int], architectures: tuple[str, ...], starts: bool = True
) -> GpuFacts:
    return GpuFacts(
        name=name,
        driver="580.82",
        capability=capability,
        cuda_build="13.0",
        architectures=architectures,
        starts=starts,
    )


CASES = {
    "none": (GpuFacts(cuda_build="13.0"), None, "runs on the CPU"),
    "fits": (facts("A100", (8, 0), NEW), True, "A100, driver 580.82, torch for CUDA 13.0: they fit"),
    "a minor version newer": (facts("L40S", (8, 9), NEW), True, "they fit"),
    "older than the build's code": (
        facts("V100", (7, 0), NEW),
        False,
        f"no code for sm_70; install another: {BUILDS}",
    ),
    "old device, old build": (facts("V100", (7, 0), OLD), True, "they fit"),
    "newer than the build's code": (facts("B200", (10, 0), OLD), False, "no code for sm_100"),
    "newer than its code, but with PTX": (facts("next", (13, 0), NEW), True, "they fit"),
    "driver too old": (facts("A100", (8, 0), NEW, starts=False), False, DRIVERS),
    "CPU build": (GpuFacts(name="A100", driver="550.1", capability=(8, 0)), False, "torch is a CPU build"),
}


@pytest.mark.parametrize("case", CASES)
def test_gpu_driver_and_build(case: str) -> None:
    gpu, well, words = CASES[case]
    check = judge_gpu(gpu)
    assert check.well is well
    assert words in check.says


def test_a_token_is_found_but_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_word")
    result = CliRunner().invoke(doctor, ["--json"])
    assert "secret" not in result.output
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert checks["hub token"]["says"] == "present"
    assert checks["torch"]["well"]


@pytest.mark.parametrize("problem", [None, "the command bwrap is not installed here"])
def test_bubblewrap_works_or_the_package_is_named(
    problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_problem", lambda: problem)
    result = CliRunner().invoke(doctor, ["--json"])
    (check,) = [check for check in json.loads(result.stdout) if check["name"] == "bubblewrap"]
    assert check["well"] is (None if problem else True)
    assert ("install the package bubblewrap" in check["says"]) is bool(problem)


def test_data_that_is_missing_is_amiss(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    result = CliRunner().invoke(doctor, ["--tasks", "gsm8k,unmask_arith", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "gsm8k/train.jsonl is missing" in result.output
    assert "ok  unmask_arith" in result.output
