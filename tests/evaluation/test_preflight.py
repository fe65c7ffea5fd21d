"""Bad requests end in one sentence before any model is loaded."""

from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError

pytestmark = pytest.mark.usefixtures("lm_eval")


def refused(names: str, data: Path | None, **options: Any) -> str:
    from unmask.evaluation.preflight import load_tasks

    with pytest.raises(UnmaskError) as caught:
        load_tasks(names.split(","), data, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize(
    "name, near", [("gsm8", "gsm8k"), ("mmlu_anatomie", "mmlu_anatomy"), ("gpqa_main", "gpqa_main_n_shot")]
)
def test_an_unknown_task_gets_the_nearest_names(name: str, near: str, invented: Path) -> None:
    sentence = refused(name, invented)
    assert repr(name) in sentence
    assert near in sentence


def test_no_name_is_like_it(invented: Path) -> None:
    assert "docs/evaluation.md" in refused("§§§", invented)
    assert "--tasks gsm8k" in refused(" ,", invented)


def test_a_task_twice(invented: Path) -> None:
    assert "mmlu_anatomy is asked for twice" in refused("mmlu_anatomy,mmlu", invented)


def test_data_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refused("gsm8k", tmp_path / "none")
    sentence = refused("gsm8k", tmp_path)
    assert "gsm8k/train.jsonl is missing" in sentence
    assert "openai/gsm8k" in sentence
    assert "gpqa/gpqa_main.jsonl is missing" in refused("gpqa_main_zeroshot", tmp_path)


def test_rows_of_another_schema(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "gsm8k").mkdir(exist_ok=True)
        (tmp_path / f"gsm8k/{split}.jsonl").write_text('{"frage": 1}\n')
    assert "gsm8k cannot be loaded from" in refused("gsm8k", tmp_path)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_that_means_nothing(limit: int, invented: Path) -> None:
    assert f"--limit is {limit}" in refused("gsm8k", invented, limit=limit)


def test_a_limit_beyond_the_set(invented: Path) -> None:
    assert "gsm8k has 3 rows" in refused("gsm8k", invented, limit=4)


def test_programs_run_only_when_allowed(invented: Path) -> None:
    assert "--allow-code" in refused("humaneval", invented)


def test_a_sentence_model_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    (tmp_path / "ifeval").mkdir()
    (tmp_path / "ifeval/input_data.jsonl").write_text("{}\n")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk, "download", lambda *_, **__: False)
    assert "punkt_tab" in refused("ifeval", tmp_path)


def test_a_gated_set_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = []

    class Api:
        def auth_check(self, dataset: str, repo_type: str) -> None:
            asked.append((dataset, repo_type))
            failure: Any = type("GatedRepoError", (Exception,), {})("Access to dataset is restricted")
            failure.response = type("Reply", (), {"status_code": 401})
            raise failure

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    sentence = refused("gpqa_diamond_zeroshot", None)
    assert asked == [("Idavidrein/gpqa", "dataset")]
    assert "accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa" in sentence


def test_offline_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "cannot be reached" in refused("gsm8k", None)
