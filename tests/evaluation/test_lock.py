"""`unmask prepare` writes hashes, and a run from a lock refuses anything else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.store.run_folder import WorkerSettings

pytestmark = pytest.mark.usefixtures("lm_eval")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what a run from a lock does to the libraries' settings."""
    import datasets
    import huggingface_hub

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "0")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


def prepare(model: Path, data: Path, lock: Path, tasks: str = "gsm8k") -> dict[str, Any]:
    from unmask.cli.recipe import prepare as command

    arguments = ["--tasks", tasks, "--model", str(model), "--data", str(data), "--output", str(lock)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(lock.read_text())
    return found


def evaluate(model: Path, data: Path, lock: Path, tasks: str = "gsm8k") -> Any:
    from unmask.cli.eval import evaluate as command

    options = ["--data", str(data), "--lock", str(lock), "--limit", "1", "--max-new-tokens", "4"]
    return CliRunner().invoke(command, ["--tasks", tasks, "--model", str(model), *options])


@pytest.mark.usefixtures("network")
def test_a_run_from_its_lock(
    text_model: Path, invented: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_word")
    lock = tmp_path / "unmask.lock"
    found = prepare(text_model, invented, lock)
    assert set(found["files"]) == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert list(found["tasks"]) == ["gsm8k"]
    assert found["mask_token_id"] == open_checkpoint(text_model).config.mask_token_id is not None
    assert "secret" not in lock.read_text()
    assert evaluate(text_model, invented, lock).exit_code == 0
    assert "is not in the lock" in str(evaluate(text_model, invented, lock, "mmlu_anatomy").exception)

    other = tmp_path / "data"
    shutil.copytree(invented / "gsm8k", other / "gsm8k")
    (other / "gsm8k/test.jsonl").write_text('{"question": "1?", "answer": "#### 1"}\n')
    assert "samples of gsm8k are not those" in str(evaluate(text_model, other, lock).exception)

    changed = tmp_path / "checkpoint"
    shutil.copytree(text_model, changed)
    (changed / "tokenizer_config.json").write_text("{}")
    assert "is not the file that was locked" in str(evaluate(changed, invented, lock).exception)


@pytest.mark.usefixtures("network")
def test_a_file_that_came_later_is_no_part_of_the_locked_checkpoint(
    text_model: Path, invented: Path, tmp_path: Path
) -> None:
    lock, changed = tmp_path / "unmask.lock", tmp_path / "checkpoint"
    prepare(text_model, invented, lock)
    shutil.copytree(text_model, changed)
    (changed / "README.md").write_text("Nothing that is read.")
    assert evaluate(changed, invented, lock).exit_code == 0
    (changed / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert "chat_template.jinja was not there when" in str(evaluate(changed, invented, lock).exception)


def test_the_merges_of_a_tokenizer_that_needs_them_are_locked(tmp_path: Path) -> None:
    from unmask.evaluation.lock import checkpoint_files

    for name in ("vocab.json", "merges.txt", "notes.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in checkpoint_files(tmp_path)] == ["merges.txt", "vocab.json"]
    (tmp_path / "tokenizer.json").touch()
    assert [file.name for file in checkpoint_files(tmp_path)] == ["tokenizer.json", "vocab.json"]


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    "change", [{"lm_eval": "0.3.0"}, {"versions": {"gsm8k": "2.5"}}], ids=lambda change: next(iter(change))
)
def test_other_code_of_a_task_than_the_locked_one_is_refused(
    text_model: Path, invented: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Both are part of a run's identity, so that a result would claim what was not run."""
    lock = tmp_path / "unmask.lock"
    found = prepare(text_model, invented, lock)
    lock.write_text(json.dumps(found | change))
    sentence = str(evaluate(text_model, invented, lock).exception)
    assert "was locked with" in sentence
    assert sentence.endswith("run `unmask prepare` again.")


@pytest.mark.usefixtures("network")
def test_a_worker_refuses_a_lock_that_was_renewed_after_its_run_was_planned(
    text_model: Path, invented: Path, tmp_path: Path
) -> None:
    from unmask.evaluation.worker import _tasks
    from unmask.spec.lock import read_lock

    prepare(text_model, invented, tmp_path / "unmask.lock")
    lock = read_lock(tmp_path / "unmask.lock")
    task = {
        "name": "gsm8k",
        "limit": 1,
        "rows_sha256": lock.tasks,
        "version": lock.versions,
        "lm_eval": lock.lm_eval,
    }
    worker = WorkerSettings(checkpoint=str(text_model), data=str(invented))
    assert _tasks({"weights": lock.weights, "task": task}, worker, lock).sizes == {"gsm8k": 1} | lock.sizes
    changes = {"rows_sha256": {"gsm8k": "0"}, "version": {"gsm8k": "0"}, "lm_eval": "0.3.0"}
    planned = [(lock.weights, {**task, part: value}) for part, value in changes.items()] + [("0", task)]
    for weights, other in planned:
        with pytest.raises(UnmaskError, match="The lock has changed since this run was planned"):
            _tasks({"weights": weights, "task": other}, worker, lock)


def test_locks_that_cannot_be_read(tmp_path: Path) -> None:
    from unmask.spec.lock import read_lock

    with pytest.raises(UnmaskError, match="no such lock"):
        read_lock(tmp_path / "none")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(UnmaskError, match="cannot be read as a lock"):
        read_lock(tmp_path / "broken")


def test_pinned_commits_reach_the_definitions() -> None:
    from unmask.evaluation.catalogue import sources
    from unmask.evaluation.task_files import task_file

    content = task_file(sources()["gsm8k"], None, {"openai/gsm8k": "abc"})
    assert content["dataset_kwargs"] == {"revision": "abc"}
