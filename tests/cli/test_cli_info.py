"""`unmask info`: what a checkpoint is, what it needs, whether it can be run."""

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from cli_cases import CONTEXT, Run

from unmask.model.checkpoint import open_checkpoint
from unmask.model.memory import PROCESS_BYTES, buffer_bytes, kv_bytes, weight_bytes


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    values = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


def facts(run: Run, *arguments: object, exit_code: int = 0) -> dict[str, object]:
    result = run("info", *arguments, "--json")
    assert result.exit_code == exit_code, result.output
    parsed: dict[str, object] = json.loads(result.stdout)
    return parsed


def test_a_usable_checkpoint(run: Run, text_model: Path):
    result = run("info", text_model)
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert {"layers: 2", "block size: 32", "mask token: 257", "stop tokens: 256", "stored dtype: F32"} <= {
        *lines
    }
    assert {"tokenizer: present", "chat template: present", "parameters: 32,160"} <= {*lines}
    assert lines[-1] == "usable: yes"


def test_a_checkpoint_without_tokenizer_is_usable(run: Run, bare_model: Path):
    given = facts(run, bare_model)
    assert (given["tokenizer"], given["chat_template"], given["usable"]) == (False, False, True)


def test_a_document_steers_no_terminal_and_says_the_same(run: Run):
    path = "an é, \x8e, \x9b2J, \u202e and \N{NO-BREAK SPACE}"
    result = run("info", path, "--json")
    assert not set(result.stdout) & set("\x8e\x9b\u202e")
    assert "é" in result.stdout
    assert json.loads(result.stdout)["path"] == path


def test_memory_is_that_of_the_weights_and_the_buffers(run: Run, bare_model: Path):
    config = open_checkpoint(bare_model).config
    memory = facts(run, bare_model, "--batch-size", 3, "--length", 100)["memory"]
    assert memory == {
        "batch_size": 3,
        "length": 100,
        "bytes": {
            "float32": {
                "weights": config.parameters * 4,
                "kv": kv_bytes(config, 3, 128, 4),
                "buffers": buffer_bytes(config, 3, 128, 4),
                "packing": 0,
                "process": PROCESS_BYTES,
            },
            "16 bit": {
                "weights": weight_bytes(config, 2),
                "kv": kv_bytes(config, 3, 128, 2),
                "buffers": buffer_bytes(config, 3, 128, 2),
            },
        },
    }
    assert kv_bytes(config, 3, 128, 4) == 2 * 2 * 3 * 128 * 2 * 8 * 4


def test_a_length_beyond_the_context(run: Run, bare_model: Path):
    given = facts(run, bare_model, "--length", CONTEXT + 1, exit_code=2)
    assert given["reason"] == f"length {CONTEXT + 1} exceeds the context of {CONTEXT} tokens."


def test_without_mask_token(run: Run, spoiled: Path):
    change_config(spoiled, mask_token_id=None)
    assert facts(run, spoiled)["mask_token"] == 257, "the tokenizer knows it"
    for file in spoiled.glob("tokenizer*"):
        file.unlink()
    result = run("info", spoiled)
    assert result.exit_code == 2
    last = result.stdout.splitlines()[-1]
    assert last.strip().startswith("usable: no, because")
    assert "names no mask token" in last


def test_without_block_size(run: Run, spoiled: Path):
    change_config(spoiled, bd_size=None)
    assert "names no block size" in str(facts(run, spoiled, exit_code=2)["reason"])


def test_json_says_why_nothing_can_be_read(run: Run, tmp_path: Path):
    given = facts(run, tmp_path / "nowhere", exit_code=2)
    assert given["usable"] is False
    assert "no such folder" in str(given["reason"])


def test_of_a_hub_id_only_small_files_are_fetched(
    run: Run, text_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    def snapshot(repository: str, allow_patterns: list[str], **_: Any) -> str:
        asked.extend(allow_patterns)
        return str(
            shutil.copytree(text_model, tmp_path / "small", ignore=shutil.ignore_patterns("*.safetensors"))
        )

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    result = run("info", "org/no-such-name")
    assert result.exit_code == 0, result.output
    assert "weights: not downloaded, so unchecked" in result.stdout
    assert not any("safetensors" in pattern for pattern in asked if pattern != "*.json")


def test_weights_in_the_download_cache_are_looked_at(
    run: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(text_model))
    given = facts(run, "org/no-such-name")
    assert (given["weights"], given["stored_dtype"]) == ("present", "F32")


def test_a_local_folder_without_weights_cannot_be_run(run: Run, spoiled: Path):
    (spoiled / "model.safetensors").unlink()
    given = facts(run, spoiled, exit_code=2)
    assert given["weights"] == "missing"
    assert "model.safetensors is missing" in str(given["reason"])


def no_network(*_: Any, **__: Any) -> str:
    raise AssertionError("the hub was asked")


def test_a_published_checkpoint_is_known_without_a_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    told = facts(run, "Efficient-Large-Model/Fast_dLLM_v2_7B")
    assert (told["parameters"], told["block_size"], told["usable"]) == (7_615_616_512, 32, True)
    assert told["weights"] == "not downloaded"
    lines = run("info", "Efficient-Large-Model/Fast_dLLM_v2_7B").stdout
    assert "known: not from its files but from facts that ship with Unmask" in lines
    too_long = facts(run, "Efficient-Large-Model/Fast_dLLM_v2_7B", "--length", 40_000, exit_code=2)
    assert "exceeds the context of 32768 tokens" in str(too_long["reason"])


@pytest.mark.parametrize(
    ("name", "family"),
    [("GSAI-ML/LLaDA-8B-Instruct", "llada"), ("Dream-org/Dream-v0-Instruct-7B", "dream")],
)
def test_published_canvas_models_are_known_without_a_network(
    run: Run, name: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    told = facts(run, name)
    assert (told["family"], told["usable"], told["block_size"]) == (family, True, None)


def test_files_in_the_cache_come_before_published_facts(
    run: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: str(text_model))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(text_model))
    assert facts(run, "Efficient-Large-Model/Fast_dLLM_v2_7B")["parameters"] == 32_160
