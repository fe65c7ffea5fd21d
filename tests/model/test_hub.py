"""Where a checkpoint is looked for, without a network."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from unmask.errors import UnmaskError
from unmask.model.hub import find_checkpoint, needs_download


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint("org/name") == Path("org/name")
    assert find_checkpoint(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["name", "a/b/c", "/no/such/place", "./org/name"])
def test_what_is_no_hub_id_stays_a_path(name: str) -> None:
    assert find_checkpoint(name) == Path(name)


def test_a_hub_id_is_downloaded_without_remote_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot(repository: str, **named: Any) -> str:
        asked.update(named, repository=repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert find_checkpoint("org/no-such-name", "v1") == tmp_path
    assert (asked["repository"], asked["revision"]) == ("org/no-such-name", "v1")
    assert not any(pattern.endswith("py") for pattern in asked["allow_patterns"])


@pytest.mark.parametrize(
    "error",
    [LocalEntryNotFoundError("x"), OfflineModeIsEnabled("x"), ConnectionError("x"), OSError("x")],
    ids=repr,
)
def test_a_hub_that_cannot_be_reached(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(repository: str, **named: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(
        UnmaskError, match=r"^org/no-such-name is no local folder.*hub cannot be reached.*\.$"
    ):
        find_checkpoint("org/no-such-name")


def test_weights_that_were_fetched_need_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(repository: str, file: str, **_: Any) -> str | None:
        return str(tmp_path) if (repository, file) == ("org/here", "model.safetensors.index.json") else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", looked_up)
    assert not needs_download("org/here")
    assert needs_download("org/elsewhere")
    assert not needs_download(tmp_path)
    assert not needs_download("embedded")
