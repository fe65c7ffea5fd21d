"""Recorded decodings: the golden folder passes, differences are found and named, broken folders refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from unmask.cli import app
from unmask.conformance.check import check, record
from unmask.conformance.vectors import read_vector
from unmask.engine.engine import Engine
from unmask.engine.prompt import Request
from unmask.engine.unmasking import ForcedTokens
from unmask.loading import load
from unmask.model.synthetic import write_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)], prog_name="unmask")


def copy(folder: Path, *names: str) -> None:
    for name in names:
        shutil.copy(GOLDEN / f"{name}.json", folder)


def change(folder: Path, name: str, **changes: Any) -> None:
    values = json.loads((GOLDEN / f"{name}.json").read_text()) | changes
    (folder / f"{name}.json").write_text(json.dumps(values))


def read(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return values


@pytest.mark.slow
def test_the_golden_folder_passes():
    result = run(GOLDEN, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    files = {file.stem for file in GOLDEN.glob("*.json")}
    assert {vector["vector"] for vector in report["vectors"]} == files
    assert report["different"] == 0
    assert report["equal"] == len(files)
    assert sum(vector["steps_equal"] is True for vector in report["vectors"]) >= 24


def test_the_table(tmp_path: Path):
    copy(tmp_path, "single_thr0.5", "single_stop0", "loglikelihood_first_token", "sdar_stop_middle")
    result = run(tmp_path)
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert rows["single_thr0.5"] == ["single_thr0.5", "equal", "equal", "-", "2.2e-04"]
    assert rows["single_stop0"][:4] == ["single_stop0", "equal", "-", "-"]
    assert rows["loglikelihood_first_token"][1] == "equal"
    assert rows["sdar_stop_middle"][:4] == ["sdar_stop_middle", "equal", "-", "-"], "families may be mixed"
    assert result.stdout.endswith("4 equal, 0 different (float32)\n")


def test_a_differing_token_is_found(tmp_path: Path):
    name = "single_thr0.5"
    expect = read(name)["expect"]
    expect[0]["ids"][11] += 1
    change(tmp_path, name, expect=expect)
    result = run(tmp_path)
    assert result.exit_code == 1
    ids = expect[0]["ids"]
    assert f"position 11: {ids[11] - 1}, expected {ids[11]}" in result.stdout
    assert "0 equal, 1 different" in result.stdout


DIFFERENCES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "steps": ("single_thr0.5", {"forwards": {"prefill": 1, "block": 8, "commit": 2}}, None),
    "length": (
        "single_thr0.5",
        {"expect": [{"ids": read("single_thr0.5")["expect"][0]["ids"][:-1]}]},
        "position 56: 57",
    ),
    "written": (
        "sdar_b4_dynamic_steps2_len18",
        {"written": [[18], *read("sdar_b4_dynamic_steps2_len18")["written"][1:]]},
        "step 1 wrote 18, 19, expected 18",
    ),
    "one step more": (
        "sdar_b4_dynamic_steps2_len18",
        {"written": [*read("sdar_b4_dynamic_steps2_len18")["written"], [9]]},
        "step 22 wrote nothing, expected 9",
    ),
    "forwards of a publisher": (
        "sdar_b4_dynamic_steps2_len18",
        {"forwards": {"prefill": 1, "denoise": 21, "commit": 11}},
        None,
    ),
    "finish": (
        "single_stop0",
        {"expect": [read("single_stop0")["expect"][0] | {"finish": "length"}]},
        "finished by stop",
    ),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_other_differences_are_found(tmp_path: Path, case: str):
    name, changes, words = DIFFERENCES[case]
    change(tmp_path, name, **changes)
    outcome = check(read_vector(tmp_path / f"{name}.json"), tmp_path)
    assert outcome.failed
    assert words in outcome.first_difference if words and outcome.first_difference else words is None
    assert run(tmp_path).exit_code == 1


def write_short_batch(folder: Path, tokens: int) -> None:
    """A vector of several prompts, cut to its first tokens: a lower limit returns the beginning."""
    name = "batch0_nocache"
    expect = [{"ids": answer["ids"][:tokens]} for answer in read(name)["expect"]]
    decode = read(name)["decode"] | {"max_new_tokens": [tokens] * len(expect)}
    change(folder, name, expect=expect, decode=decode)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_report_agreement_under_forced_tokens(tmp_path: Path, dtype: str):
    write_short_batch(tmp_path, tokens=10)
    copy(tmp_path, "single_stop0")
    result = run(tmp_path, "--dtype", dtype, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["different"] == 0
    tokens = 3 * 10 + len(read("single_stop0")["expect"][0]["ids"])
    assert report["positions"] >= tokens, "every token of an answer is compared"
    assert 0.9 * report["positions"] < report["agreed"] <= report["positions"]


def test_other_dtypes_have_a_column_of_their_own(tmp_path: Path):
    write_short_batch(tmp_path, tokens=2)
    result = run(tmp_path, "--dtype", "bfloat16")
    assert "bfloat16 agrees\n" in result.stdout.replace(" \n", "\n")
    assert "bfloat16 agrees with float32 on " in result.stdout.splitlines()[-1]


def test_a_dtype_agrees_with_itself(tmp_path: Path):
    vector = read_vector(GOLDEN / "single_thr0.5.json")
    engine = load(write_checkpoint(vector.checkpoint.values, tmp_path), "cpu", "float32")
    generations, script = record(engine, vector)
    rule = ForcedTokens(script)
    again, _ = record(engine, vector, rule)
    assert again[0].ids == generations[0].ids == vector.expect[0].ids
    assert rule.agreed == rule.positions >= len(again[0].ids)


def test_a_differing_score_is_found(tmp_path: Path):
    name = "loglikelihood_first_token"
    rows = read(name)["rows"]
    rows[2]["loglikelihood"] += 0.01
    change(tmp_path, name, rows=rows)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "row 3: " in result.stdout


BROKEN: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "cannot be read as JSON"),
    "no object": ([1], "is no conformance vector: Expected `object`"),
    "no checkpoint": ({"prompts": [[1]]}, "missing required field `checkpoint`"),
    "no seed": ({"checkpoint": {"logit_scale": 1, "config": {}}}, "missing required field `seed`"),
    "prompts": (read("single_thr0.5") | {"prompts": []}, "0 prompts, 1 expectations"),
    "rows": (read("loglikelihood_first_token") | {"rows": []}, "names an estimator but has no rows"),
    "setting": (read("single_thr0.5") | {"decode": {"treshold": 1}}, "unknown field `treshold`"),
    "threshold": (read("single_thr0.5") | {"decode": {"threshold": 2}}, "threshold is 2"),
    "strategy": (
        read("sdar_stop_middle") | {"decode": {"remasking_strategy": "random"}},
        "remasking_strategy is 'random'; this version knows sequential, low_confidence_static",
    ),
    "family": (read("sdar_stop_middle") | {"family": "sdar_moe"}, "the family 'sdar_moe' cannot be read"),
    "weights": (
        read("single_thr0.5") | {"checkpoint": read("single_thr0.5")["checkpoint"] | {"seed": 4}},
        "differ from those it was recorded with",
    ),
    "config": (
        read("single_thr0.5")
        | {"checkpoint": {"seed": 1, "logit_scale": 1, "config": {"model_type": "gpt2"}}},
        "architecture 'gpt2' cannot be run",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_vectors_are_refused(tmp_path: Path, case: str):
    content, words = BROKEN[case]
    (tmp_path / "broken.json").write_text(content if isinstance(content, str) else json.dumps(content))
    refused(run(tmp_path), words)


def test_folders_without_vectors_are_refused(tmp_path: Path):
    refused(run(tmp_path), "holds no conformance vectors")
    refused(run(tmp_path / "nowhere"), "no such folder")


def test_unknown_dtypes_and_devices_are_refused():
    refused(run(GOLDEN, "--dtype", "int3"), "'int3' is no dtype")
    refused(run(GOLDEN, "--device", "toaster"), "is no device")


def refused(result: Result, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


# A checkpoint of one's own.


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(read("single_thr0.5")["checkpoint"], tmp_path_factory.mktemp("own") / "model")


def test_a_checkpoint_agrees_with_itself(own: Path):
    result = run("--model", own)
    assert result.exit_code == 0, result.output
    report = json.loads(run("--model", own, "--json").stdout)
    names = [vector["vector"] for vector in report["vectors"]]
    assert names == [
        f"prompt of {length}" for length in ("1 token", "31 tokens", "32 tokens", "33 tokens", "80 tokens")
    ]
    assert all(vector["tokens_equal"] and vector["steps_equal"] for vector in report["vectors"])
    assert result.stdout.endswith("5 equal, 0 different (float32)\n")


@pytest.mark.parametrize("name", ["llada_prefix_gqa", "dream_dual_entropy"])
def test_a_canvas_checkpoint_agrees_with_itself(name: str, tmp_path: Path):
    model = write_checkpoint(read(name)["checkpoint"], tmp_path / "model")
    result = run("--model", model)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("5 equal, 0 different (float32)\n")


def test_a_dtype_is_compared_on_the_steps_of_float32(own: Path):
    report = json.loads(run("--model", own, "--dtype", "bfloat16", "--json").stdout)
    assert 0.8 < report["agreed"] / report["positions"] <= 1
    assert report["positions"] >= 5 * 20


def test_answers_that_depend_on_their_batch_are_found(own: Path, monkeypatch: pytest.MonkeyPatch):
    """A row that saw its neighbours would be noticed: here the third answer changes as soon as there are five."""
    original = Engine.stream

    def leaking(self: Engine, prompts: list[Any], *arguments: Any, **named: Any) -> Any:
        requests = list(prompts)
        if len(requests) > 1:
            requests[2] = Request([*requests[2].prompt[:-1], 5], requests[2].max_new_tokens)
        return original(self, requests, *arguments, **named)

    monkeypatch.setattr(Engine, "stream", leaking)
    result = run("--model", own)
    assert result.exit_code == 1
    assert "4 equal, 1 different" in result.stdout


@pytest.mark.parametrize("arguments", [(), (GOLDEN, "--model", "embedded")])
def test_either_vectors_or_a_checkpoint(arguments: tuple[object, ...]):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "either a folder of vectors or a checkpoint" in result.stderr
