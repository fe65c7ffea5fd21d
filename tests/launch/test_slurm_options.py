"""Resources become the words of sbatch, and what cannot be right is refused before anything is submitted."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from light_jobs import light_jobs, script_job

from recipe_cases import recipe
from unmask.errors import UnmaskError
from unmask.launch import submit
from unmask.launch.slurm import (
    asks_for_gpus,
    note_on_dtype,
    read_resources,
    sbatch_options,
    suiting_dtype,
    warning_seconds,
)


def test_options_in_sbatchs_words() -> None:
    resources = read_resources(
        {
            "gpus": 1,
            "gpu_type": "rtx_6000",
            "cpus": 4,
            "memory_gb": 32,
            "partition": "gpu",
            "exclude": "node[1-3]",
            "sbatch": {"mail_user": "me@example.org", "--exclusive": True, "nice": 5, "contiguous": False},
        }
    )
    assert sbatch_options(resources) == {
        "requeue": True,
        "gres": "gpu:rtx_6000:1",
        "cpus-per-task": 4,
        "mem": "32G",
        "partition": "gpu",
        "exclude": "node[1-3]",
        "mail-user": "me@example.org",
        "exclusive": True,
        "nice": 5,
    }


def test_gpus_without_a_type_and_no_gpus() -> None:
    assert sbatch_options(read_resources({"gpus": 2}))["gres"] == "gpu:2"
    assert "gres" not in sbatch_options(read_resources({}))
    assert "no-requeue" in sbatch_options(read_resources({"requeue": False}))


def test_the_warning_comes_early_enough_but_not_at_the_start() -> None:
    found = [warning_seconds(read_resources({"minutes": minutes})) for minutes in (1, 10, 240)]
    assert found == [15, 60, 120]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpu": 1}, "unknown field `gpu`.*gpus, gpu_type"),
        ({"cpus": "four"}, r"Expected `int`, got `str` - at `\$.cpus`"),
        ({"cpus": 0}, r"`int` >= 1 - at `\$.cpus`"),
        ({"sbatch": {"array": "0-3"}}, "may not set `array`"),
        ({"sbatch": {"open_mode": "truncate"}}, "may not set `open_mode`"),
        ({"sbatch": {"licenses": ["a", "b"]}}, "`licenses` is .*; it must be one line of text, a"),
    ],
)
def test_wrong_resources_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UnmaskError, match=message):
        read_resources(fields)


@pytest.mark.parametrize(
    "resources",
    [
        {"setup": ["export HF_TOKEN=hf_abcdefghijklmnopqrst"]},
        {"setup": ["login my-own-secret"]},
        {"sbatch": {"comment": "my-own-secret"}},
        {"setup": ["export MY_PASSWORD=abc"]},
        {"sbatch": {"export": "ALL,DB_PASSWORD=abc"}},
        {"setup": ["pip install -i https://me@index.example/simple x"]},
    ],
)
def test_a_token_is_never_written_into_a_script(
    resources: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "my-own-secret")
    with pytest.raises(UnmaskError, match="access token") as refusal:
        next(submit(light_jobs(tmp_path, 1), tmp_path, resources))
    assert "my-own-secret" not in str(refusal.value)
    assert "hf_abc" not in str(refusal.value)


def test_a_reference_to_a_token_is_no_token(tmp_path: Path, fake_cluster: Path) -> None:
    setup = ["export HF_TOKEN=$(cat ~/.hub)", "export MY_PASSWORD=$OTHER"]
    assert next(submit(light_jobs(tmp_path, 1), tmp_path, {"setup": setup}))
    assert "export HF_TOKEN=$(cat ~/.hub)" in fake_cluster.read_text()


def test_a_token_in_the_command_is_refused(tmp_path: Path) -> None:
    job = script_job(tmp_path / "run", "token = 'hf_abcdefghijklmnopqrst'")
    with pytest.raises(UnmaskError, match="access token"):
        next(submit([job], tmp_path, {}))


def test_without_sbatch_a_sentence_says_where_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnmaskError, match="no sbatch here; use a login node"):
        next(submit(light_jobs(tmp_path, 1), tmp_path, {}))


def test_without_submitit_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    real = builtins.__import__

    def without_submitit(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "submitit":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_submitit)
    with pytest.raises(UnmaskError, match=r"pip install 'unmask\[slurm\]'"):
        next(submit(light_jobs(tmp_path, 1), tmp_path, {}))


def test_a_path_that_sbatch_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="has a % in its path"):
        next(submit(light_jobs(tmp_path, 1), tmp_path / "50%j", {}))


BATCH_FILE = """\
#!/bin/bash

# Parameters
#SBATCH --account=mine
#SBATCH --array=0-2%2
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:rtx_6000:1
#SBATCH --job-name=sweep
#SBATCH --mem=32G
#SBATCH --nice=5
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output=FOLDER/%A_%a/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR2@120
#SBATCH --time=60
#SBATCH --wckey=submitit

# setup
export PATH="${PATH:-/usr/bin:/bin}:"HERE/programs
module load cuda

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output FOLDER/%A_%a/%A_%a_%t_log.out --export=ALL --cpus-per-task=4 \
PYTHON -u -m submitit.core._submit FOLDER/%j
"""


@pytest.fixture
def fake_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that stand in for SLURM's: sbatch keeps the batch file that it is given."""
    programs = tmp_path / "programs"
    programs.mkdir()
    kept = tmp_path / "batch.sh"
    texts = {
        "sbatch": f'cp "$1" "{kept}"; echo "Submitted batch job 17"',
        "srun": "exit 1",
        "scontrol": 'echo "MaxArraySize = 10"',
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return kept


def test_the_text_of_a_batch_file(tmp_path: Path, fake_cluster: Path) -> None:
    commands = light_jobs(tmp_path / "runs", 3)
    resources = {"gpus": 1, "gpu_type": "rtx_6000", "cpus": 4, "memory_gb": 32, "minutes": 60, "parallel": 2}
    more = {"account": "mine", "partition": "gpu", "setup": ["module load cuda"], "sbatch": {"nice": 5}}
    (array,) = submit(commands, tmp_path / "slurm", {**resources, **more}, lambda _commands: "sweep")
    assert [each.job_id for each in array] == ["17_0", "17_1", "17_2"]
    text = fake_cluster.read_text()
    for path, word in (
        (str(tmp_path / "slurm"), "FOLDER"),
        (sys.executable, "PYTHON"),
        (str(tmp_path), "HERE"),
    ):
        text = text.replace(path, word)
    assert text == BATCH_FILE


@pytest.mark.parametrize(
    ("dtype", "names"),
    {
        "bfloat16": "a100 A100-SXM4-80GB a100_3g.40gb nvidia_a30 a40 h100 H200 l4 L40S rtx_3090 "
        "geforce_rtx_4090 rtx_5090 rtx_a6000 quadro_rtx_a5000 rtx_6000_ada rtx_pro_6000_blackwell b200",
        "float16": "v100 tesla_v100-pcie-32gb t4 rtx_6000 quadro_rtx_8000 rtx_5000 geforce_rtx_2080_ti titan_rtx "
        "gtx_1660",
        "float32": "p100 tesla_p40 gtx_1080_ti gtx_1080 titan_x",
        None: "gpu mi250x gaudi2 rtx fast nvidia_2080 nvidia_1080",
    }.items(),
)
def test_the_number_format_that_suits_a_type_of_gpu(dtype: str | None, names: str) -> None:
    assert {name: suiting_dtype(name) for name in names.split()} == dict.fromkeys(names.split(), dtype)


GPU = "[resources]\ngpus = 1\n"
NONE = "[resources]\n"


@pytest.mark.parametrize("wanted", ['gres = "gpu:a100:2"', 'gpus_per_node = "2"', '"--gpus" = 1'])
def test_gpus_may_be_asked_for_in_sbatchs_own_words(wanted: str) -> None:
    asked = recipe((GPU, NONE), ("[resources.sbatch]\n", f"[resources.sbatch]\n{wanted}\n"))
    assert asks_for_gpus(asked.resources)
    assert not asks_for_gpus(
        recipe((GPU, NONE), ("[resources.sbatch]\n", '[resources.sbatch]\ngres = "ssd"\n')).resources
    )


def test_a_job_with_gpus_needs_a_number_format() -> None:
    with pytest.raises(
        UnmaskError, match=r'tiny names no number format.*\[model\]: dtype = "bfloat16" \(Ampere'
    ):
        note_on_dtype(recipe())
    with pytest.raises(UnmaskError, match=r'\[model\]: dtype = "float16", which suits rtx_6000\.'):
        note_on_dtype(recipe((GPU, GPU + 'gpu_type = "rtx_6000"\n')))
    assert note_on_dtype(recipe((GPU, NONE))) is None
    own = ('name = "loose"', 'name = "loose"\nmodel = { checkpoint = "another" }')
    named = ('checkpoint = "embedded"', 'checkpoint = "embedded"\ndtype = "float16"')
    assert note_on_dtype(recipe(named)) is None
    with pytest.raises(UnmaskError, match="add to the model of each configuration: dtype"):
        note_on_dtype(recipe(named, own))


@pytest.mark.parametrize(
    ("gpu", "dtype", "said"),
    [
        ("rtx_6000", "bfloat16", "rtx_6000 has no bfloat16, so that format is slow there; float16 suits it."),
        ("p100", "bfloat16", "p100 has no bfloat16, so that format is slow there; float32 suits it."),
        ("rtx_6000", "float16", None),
        ("a100", "bfloat16", None),
        ("a100", "float16", None),
        ("fast", "bfloat16", None),
    ],
)
def test_a_number_format_that_a_gpu_lacks_is_named(gpu: str, dtype: str, said: str | None) -> None:
    typed = (GPU, f'{GPU}gpu_type = "{gpu}"\n')
    named = ('checkpoint = "embedded"\n', f'checkpoint = "embedded"\ndtype = "{dtype}"\n')
    assert note_on_dtype(recipe(typed, named)) == said
