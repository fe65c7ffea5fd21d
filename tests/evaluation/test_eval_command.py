"""`unmask eval` and `unmask-lm-eval` from end to end on the small text model."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from unmask.errors import UnmaskError

pytestmark = pytest.mark.usefixtures("lm_eval")

SHORT = ["--max-new-tokens", "24"]


def run(model: Path, *arguments: str) -> Result:
    from unmask.cli.eval import evaluate

    return CliRunner().invoke(evaluate, ["--model", str(model), *arguments])


def document(model: Path, *arguments: str) -> dict[str, Any]:
    result = run(model, "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def refusal(model: Path, *arguments: str) -> str:
    result = run(model, *arguments)
    assert isinstance(result.exception, UnmaskError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def results(text_model: Path, invented: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results of a generative and a scoring task under a policy."""
    output = tmp_path_factory.mktemp("runs") / "one"
    result = run(
        text_model, "--tasks", "gsm8k,mmlu_anatomy", "--data", str(invented), "--limit", "2", "--output",
        str(output), "--policy", "layer_reuse:k=2,layers=0,on=sub+block", "--estimator", "onepass", *SHORT,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "exact_match,flexible-extract" in result.output
    found = json.loads((output / "results.json").read_text())
    forwards = found["tasks"]["gsm8k"]["effect"]["generation"]["forwards"]
    a_forward = found["speed"]["decoding"]["tokens"] / (sum(forwards.values()) - forwards["prefill"])
    assert f" tokens/s, {a_forward:.2f} tokens a forward over 2 requests (accuracy run)" in result.output
    return output


def test_results_carry_metric_rows_and_proof(results: Path) -> None:
    found = json.loads((results / "results.json").read_text())
    gsm8k, anatomy = found["tasks"]["gsm8k"], found["tasks"]["mmlu_anatomy"]
    assert (gsm8k["metric"], gsm8k["rows"], gsm8k["rows_of_the_set"]) == (
        "exact_match,flexible-extract",
        2,
        3,
    )
    assert gsm8k["num_fewshot"] == [5]
    assert gsm8k["effect"]["generation"]["reuse_fraction"] > 0
    assert anatomy["metric"] == "acc,none"
    assert set(anatomy["effect"]) == {"scoring"}
    assert found["model"]["policy"]["k"] == 2
    assert found["model"]["estimator"] == "onepass"
    assert found["speed"]["decoding"]["tokens"] <= 48
    assert found["speed"]["scoring"]["requests"] == 8


def test_samples_are_written_for_every_task(results: Path) -> None:
    names = {file.name for file in results.iterdir()}
    assert names == {"results.json", "samples_gsm8k.jsonl", "samples_mmlu_anatomy.jsonl"}
    rows = [json.loads(line) for line in (results / "samples_mmlu_anatomy.jsonl").read_text().splitlines()]
    assert {row["doc_id"] for row in rows} == {0, 1}


def test_a_folder_with_results_is_not_written_again(results: Path, text_model: Path) -> None:
    assert "new or empty folder" in refusal(
        text_model, "--tasks", "unmask_arith", "--output", str(results), *SHORT
    )


def test_groups_have_their_own_number_and_those_of_their_tasks(text_model: Path, invented: Path) -> None:
    found = document(text_model, "--tasks", "mmlu_other", "--data", str(invented), "--limit", "1")
    entry = found["tasks"]["mmlu_other"]
    assert entry["rows"] == len(found["subtasks"]) == 13
    assert entry["effect"]["scoring"]["requests"] == 4 * 13


def test_options_win_over_the_task(text_model: Path) -> None:
    found = document(
        text_model, "--tasks", "unmask_arith", "--limit", "2", "--max-new-tokens", "3", "--temperature", "1.5"
    )  # fmt: skip
    assert found["options"]["generation"] == {"max_gen_toks": 3, "temperature": 1.5, "do_sample": True}
    assert found["speed"]["decoding"]["tokens"] <= 6


@pytest.mark.parametrize(
    "flags, chat, hint",
    [(["--chat"], True, 0), (["--apply-chat-template"], True, 0), (["--raw"], False, 0), ([], False, 1)],
)
def test_a_chat_template_is_applied_when_asked_for(
    text_model: Path, tmp_path: Path, flags: list[str], chat: bool, hint: int
) -> None:
    arguments = ["--tasks", "unmask_arith", "--limit", "1", "--output", str(tmp_path / "run")]
    result = run(text_model, *arguments, *flags, *SHORT)
    assert result.exit_code == 0
    assert result.stderr.count("--chat applies the template") == hint
    row, *_ = (tmp_path / "run/samples_unmask_arith.jsonl").read_text().splitlines()
    assert json.loads(row)["arguments"][0][0].startswith("<|im_start|>user\n") == chat


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--tasks", "gsm9k"], "the nearest are"),
        (["--tasks", "unmask_arith", "--limit", "0"], "--limit is 0"),
        (["--tasks", "unmask_arith", "--limit", "-1"], "--limit is -1"),
        (
            ["--tasks", "unmask_choice_text", "--limit", "1", "--estimator", "canvas"],
            "canvas scores single tokens",
        ),
        (["--tasks", "unmask_arith", "--policy", "layer_reuse:k=0"], "k is 0"),
        (["--tasks", "unmask_arith", "--output", "no/such/folder"], "no such folder to make"),
        (["--tasks", "unmask_arith", "--output", "/proc/x"], "cannot be written to"),
        (["--tasks", "gsm8k", "--data", "nowhere"], "no such folder"),
        (["--tasks", "unmask_arith", "--data", "nowhere"], "no such folder"),
    ],
)
def test_bad_input_is_one_sentence(text_model: Path, arguments: list[str], words: str) -> None:
    sentence = refusal(text_model, *arguments)
    assert words in sentence
    assert "\n" not in sentence


LOOKS_AROUND = """
import os

def check(candidate):
    assert candidate(4) == 8
    assert "SECRET" not in os.environ
    assert os.path.samefile(os.environ["HOME"], os.getcwd())
    assert os.listdir() == []
"""


def console(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run unmask-lm-eval in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from unmask.evaluation.console import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )


@pytest.mark.slow
def test_lm_evals_own_command_line(text_model: Path, invented: Path, tmp_path: Path) -> None:
    found = console(
        "--model", "unmask", "--model_args", f"pretrained={text_model},threshold=0.8", "--device", "cpu", "--tasks",
        "unmask_choice,gsm8k", "--limit", "2", "--output_path", str(tmp_path), "--log_samples", "--gen_kwargs",
        "max_gen_toks=8", UNMASK_DATA=str(invented),
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    (file,) = tmp_path.rglob("results_*.json")
    results = json.loads(file.read_text())
    assert "acc,none" in results["results"]["unmask_choice"]
    assert results["config"]["weights_sha256"]
    assert results["config"]["decode"]["threshold"] == 0.8
    assert results["config"]["effect"]["generation"]["requests"] == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="runs programs")
def test_programs_of_lm_evals_command_line_run_in_the_sandbox(
    text_model: Path, invented: Path, tmp_path: Path
) -> None:
    """A row that any answer solves, since it ends in a comment, and whose test looks around where it runs."""
    data = tmp_path / "data"
    for name in ("humaneval", "mbpp"):
        shutil.copytree(invented / name, data / name)
    file = data / "humaneval/HumanEval.jsonl"
    row = {"prompt": "def double(n):\n    return 2 * n  #", "test": LOOKS_AROUND}
    file.write_text(json.dumps(json.loads(file.read_text()) | row) + "\n")
    found = console(
        "--model", "unmask", "--model_args", f"pretrained={text_model}", "--device", "cpu", "--tasks",
        "humaneval,mbpp", "--output_path", str(tmp_path / "out"), "--gen_kwargs", "max_gen_toks=1",
        "--confirm_run_unsafe_code", UNMASK_DATA=str(data), SECRET="of the user",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text())["results"]
    assert results["humaneval"]["pass@1,create_test"] == 1.0
    assert results["mbpp"]["pass_at_1,none"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [True, False])
def test_without_bubblewrap_lm_evals_command_line_runs_programs_only_where_that_is_allowed(
    text_model: Path, invented: Path, tmp_path: Path, allowed: bool
) -> None:
    (tmp_path / "bin").mkdir()
    found = console(
        "--model", "unmask", "--model_args", f"pretrained={text_model}", "--device", "cpu", "--tasks", "humaneval",
        "--limit", "1", "--output_path", str(tmp_path / "out"), "--gen_kwargs", "max_gen_toks=1",
        "--confirm_run_unsafe_code", *["--allow-unsafe-code"] * allowed, UNMASK_DATA=str(invented),
        PATH=str(tmp_path / "bin"),
    )  # fmt: skip
    if not allowed:
        assert found.returncode == 2
        assert "install the package bubblewrap" in found.stderr.strip().splitlines()[-1]
        assert not (tmp_path / "out").exists()
        return
    assert found.returncode == 0, found.stderr[-2000:]
    assert "Warning: The programs that the model writes run without isolation." in found.stderr
    (file,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(file.read_text())["config"]["sandbox"] == "unsafe"


@pytest.mark.slow
def test_a_refusal_of_lm_evals_command_line_is_one_sentence(tmp_path: Path) -> None:
    found = console(
        "--model", "unmask", "--model_args", f"pretrained={tmp_path}/none", "--tasks", "unmask_choice"
    )
    assert found.returncode == 2
    assert found.stderr.strip().splitlines()[-1].startswith("Error: ")
