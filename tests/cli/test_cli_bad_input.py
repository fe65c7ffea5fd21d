"""Bad input: exit code 2 and one sentence that says what is wrong, before anything is loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import CONTEXT, MASK, Run, error_line
from safetensors.numpy import load_file, save_file

from unmask.cli.prompts import from_arguments

Spoil = Callable[[Path], object]


def change_config(**changes: object) -> Spoil:
    def spoil(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return spoil


def without_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors")


def with_misshapen_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1].copy()
    save_file(weights, folder / "model.safetensors")


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


SPOILED_CHECKPOINTS: dict[str, tuple[Spoil, str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "is not a checkpoint"),
    "broken config": (lambda folder: (folder / "config.json").write_text("{"), "cannot be read as JSON"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    "architecture": (change_config(model_type="gpt2"), "architecture 'gpt2' cannot be run"),
    "missing tensor": (without_tensor, "tensor model.layers.1.mlp.up_proj.weight is missing"),
    "misshapen tensor": (with_misshapen_tensor, "has shape [31] but config.json asks for [32]"),
    "cut short": (cut_short, "is cut short"),
    "broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "as a tokenizer"),
}


@pytest.mark.parametrize("case", SPOILED_CHECKPOINTS)
def test_spoiled_checkpoints(run: Run, spoiled: Path, case: str):
    spoil, words = SPOILED_CHECKPOINTS[case]
    spoil(spoiled)
    assert words in error_line(run("generate", "hello", "--model", spoiled))
    result = run("info", spoiled)
    assert result.exit_code == 2
    assert words in result.output


def test_no_such_path(run: Run, tmp_path: Path):
    for verb in (["info"], ["generate", "hello", "--model"]):
        assert "no such folder" in error_line(run(*verb, tmp_path / "nowhere"))


def test_a_file_instead_of_a_folder(run: Run, text_model: Path):
    for verb in (["info"], ["generate", "hello", "--model"]):
        assert "is a file" in error_line(run(*verb, text_model / "config.json"))


def test_an_unknown_hub_id_without_network(tmp_path: Path):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from unmask.cli import main; main()", "generate", "hello"]
    command += ["--model", "no-such-org/no-such-model"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no-such-org/no-such-model is no local folder")
    assert done.stderr.count("\n") == 1


OPTIONS = {
    "sub-block": (["--sub-block-size", "5"], "block size 32 is not a multiple of sub_block_size 5"),
    "block": (["--block-size", "12"], "block size 12 is not a multiple of sub_block_size 8"),
    "threshold 0": (["--threshold", "0"], "threshold is 0.0; it must lie in (0, 1]"),
    "threshold 1.5": (["--threshold", "1.5"], "threshold is 1.5; it must lie in (0, 1]"),
    "threshold nan": (["--threshold", "nan"], "threshold is nan"),
    "no tokens": (["--max-new-tokens", "0"], "max_new_tokens is 0; it must be at least 1"),
    "temperature": (["--temperature", "-1"], "temperature is -1.0"),
    "top-p": (["--top-p", "0"], "top_p is 0.0"),
    "stop string": (["--stop", ""], "A stop string is empty"),
    "no number": (["--threshold", "high"], "'high' is not a valid float"),
    "batch": (["--batch-size", "0"], "Invalid value for '--batch-size'"),
    "device": (["--device", "toaster"], "is no device"),
    "dtype": (["--dtype", "int3"], "'int3' is no dtype"),
    "mask": (["--mask-token-id", "100000"], "outside the vocabulary"),
    "decode file": (["--decode", "nowhere.toml"], "nowhere.toml: no such file"),
    "output": (["--output", "nowhere/answers.jsonl"], "no folder that can be written to"),
    "two ways": (["--ids", "1,2"], "Give prompts in one way"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options(run: Run, text_model: Path, case: str):
    arguments, words = OPTIONS[case]
    assert words in error_line(run("generate", "hello", "--model", text_model, *arguments))


@pytest.mark.parametrize("name", ["settings.toml", "settings.json"])
def test_unknown_setting_in_a_decode_file(run: Run, text_model: Path, tmp_path: Path, name: str):
    file = tmp_path / name
    file.write_text("treshold = 0.5" if name.endswith("toml") else '{"treshold": 0.5}')
    line = error_line(run("generate", "hello", "--model", text_model, "--decode", file))
    assert line.startswith(f"{file}: Object contains unknown field `treshold`. Allowed fields: ")


@pytest.mark.parametrize("content", ["threshold = ", "\N{POUND SIGN}", "[[threshold]]"])
def test_broken_decode_file(run: Run, text_model: Path, tmp_path: Path, content: str):
    file = tmp_path / "settings.toml"
    file.write_text(content, encoding="latin-1")
    assert error_line(run("generate", "hello", "--model", text_model, "--decode", file))


def test_a_missing_tokenizer_matters_only_for_text(run: Run, bare_model: Path):
    assert "has no tokenizer.json" in error_line(run("generate", "hello", "--model", bare_model))
    stop = ["--ids", "1,2", "--stop", "x"]
    assert "has no tokenizer.json" in error_line(run("generate", *stop, "--model", bare_model))
    ids = run("generate", "--ids", "1,2", "--model", bare_model, "--max-new-tokens", 4)
    assert ids.exit_code == 0
    assert len(ids.stdout.split()) == 4


PROMPTS = {
    "empty text": ([""], "Prompt 1: A prompt is empty"),
    "empty raw text": (["", "--raw"], "Prompt 1: A prompt is empty"),
    "second empty": (["hello", ""], "Prompt 2: A prompt is empty"),
    "empty ids": (["--ids", ""], "Prompt 1: A prompt is empty"),
    "no ids": (["--ids", "one"], "'one' is no list of token ids"),
    "a gap in ids": (["--ids", "1,2,,3"], "'1,2,,3' is no list of token ids"),
    "a comma too many": (["--ids", "1, 2,"], "'1, 2,' is no list of token ids"),
    "mask": (["--ids", "1,257"], "Prompt 1: A prompt holds the mask token 257"),
    "mask as text": (["hello", f"a {MASK} b"], "Prompt 2: A prompt holds the mask token 257"),
    "mask of one's own": (
        ["--ids", "1,7", "--mask-token-id", "7"],
        "Prompt 1: A prompt holds the mask token 7",
    ),
    "too long": (["x" * CONTEXT, "--raw"], f"{CONTEXT} tokens but the model's context is {CONTEXT}"),
    "foreign id": (["--ids", "1,258"], "Token id 258 is outside the vocabulary of 258 tokens"),
    "none": ([], "Give prompts in one way"),
}


@pytest.mark.parametrize("ids", ["1,2,3", "1 2 3", " 1, 2 ,3 "])
def test_ids_between_commas_or_spaces(ids: str):
    (item,) = from_arguments([], [ids])
    assert item.request.prompt == [1, 2, 3]


@pytest.mark.parametrize("case", PROMPTS)
def test_prompts(run: Run, text_model: Path, case: str):
    arguments, words = PROMPTS[case]
    assert words in error_line(run("generate", *arguments, "--model", text_model))


LINES = {
    "no JSON": ("{", "line 2 is no JSON"),
    "no object": ("[1, 2]", "line 2: Expected `object`, got `array`"),
    "no prompt": ('{"id": 1}', "line 2: Object missing required field `prompt`"),
    "unknown field": ('{"prompt": "a", "promt": 1}', "line 2: Object contains unknown field `promt`"),
    "number": ('{"prompt": 7}', "line 2: Expected `str | array`"),
    "mixed list": ('{"prompt": [1, "a"]}', "line 2: A prompt must be"),
    "empty list": ('{"prompt": []}', "line 2: A prompt is empty"),
    "empty text": ('{"prompt": ""}', "line 2: A prompt is empty"),
    "no tokens": ('{"prompt": "a", "max_new_tokens": 0}', "line 2: max_new_tokens is 0"),
    "too long": (json.dumps({"prompt": [1] * CONTEXT}), "line 2: A prompt has 256 tokens"),
    "mask": ('{"prompt": [1, 257, 2]}', "line 2: A prompt holds the mask token 257"),
    "mask as text": (json.dumps({"prompt": f"a {MASK} b"}), "line 2: A prompt holds the mask token 257"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_bad_line_is_named_by_its_number(run: Run, text_model: Path, tmp_path: Path, case: str):
    line, words = LINES[case]
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    output = tmp_path / "answers.jsonl"
    result = run("generate", "--input", file, "--output", output, "--model", text_model)
    message = error_line(result)
    assert str(file) in message
    assert words in message
    assert not output.exists()


def test_bad_input_files(run: Run, text_model: Path, tmp_path: Path):
    empty, latin = tmp_path / "empty.jsonl", tmp_path / "latin.jsonl"
    empty.write_text("\n\n")
    latin.write_bytes(b'{"prompt": "\xe9"}\n')
    cases = {tmp_path / "nowhere.jsonl": "no such file", empty: "holds no prompts", latin: "no UTF-8 text"}
    for file, words in cases.items():
        assert words in error_line(run("generate", "--input", file, "--model", text_model))
