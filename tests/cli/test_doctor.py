"""`unmask doctor`: every combination of driver, build and device gets its sentence, and no token is told."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from unmask.cli.doctor import doctor
from unmask.cli.machine import Gpu, judge_gpu

NEW = ("sm_75", "sm_80", "sm_90", "sm_120", "compute_120")
OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_90")
CASES = {
    "none": (Gpu(cuda_build="13.0"), None, "runs on the CPU"),
    "fits": (
        Gpu(name="A100", driver="580.82", capability=(8, 0), cuda_build="13.0", architectures=NEW),
        True,
        "they fit",
    ),
    "driver below 580": (
        Gpu(name="A100", driver="570.124.06", capability=(8, 0), cuda_build="13.0", architectures=NEW),
        False,
        "below 580",
    ),
    "a minor version newer": (
        Gpu(name="L40S", driver="580.82", capability=(8, 9), cuda_build="13.0", architectures=NEW),
        True,
        "they fit",
    ),
    "device too old for the build": (
        Gpu(name="V100", driver="580.82", capability=(7, 0), cuda_build="13.0", architectures=NEW),
        False,
        "cu126",
    ),
    "old device, old build": (
        Gpu(name="V100", driver="535.1", capability=(7, 0), cuda_build="12.6", architectures=OLD),
        True,
        "they fit",
    ),
    "device newer than the build": (
        Gpu(name="B200", driver="580.82", capability=(10, 0), cuda_build="12.6", architectures=OLD),
        False,
        "cu130",
    ),
    "newer than its code, but with PTX": (
        Gpu(name="next", driver="600.1", capability=(13, 0), cuda_build="13.0", architectures=NEW),
        True,
        "they fit",
    ),
    "CPU build": (Gpu(name="A100", driver="550.1", capability=(8, 0)), False, "CPU build"),
}


@pytest.mark.parametrize("case", CASES)
def test_driver_build_and_device(case: str) -> None:
    gpu, well, words = CASES[case]
    finding = judge_gpu(gpu)
    assert finding.well is well
    assert words in finding.says


def test_the_cuda_12_build_is_offered_to_an_older_driver() -> None:
    assert "cu126" in judge_gpu(CASES["driver below 580"][0]).says


def test_a_token_is_found_but_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_word")
    result = CliRunner().invoke(doctor, ["--json"])
    assert "secret" not in result.output
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)}
    assert findings["hub token"]["says"] == "present"
    assert findings["torch"]["well"]


def test_data_that_is_missing_is_amiss(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    result = CliRunner().invoke(doctor, ["--tasks", "gsm8k,unmask_arith", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "gsm8k/train.jsonl is missing" in result.output
    assert "ok  unmask_arith" in result.output
