"""When a worker takes a further run with what it has loaded, and when that needs a fresh worker."""

import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unmask.engine.halving import MemoryRanOutWarning
from unmask.evaluation import lock as lock_module
from unmask.evaluation.engines import LoadedEngines, checkpoints_of
from unmask.evaluation.lock import check_checkpoint, file_sha256, locked_checkpoint, weights_sha256
from unmask.spec.lock import Lock, as_text, read_lock
from unmask.store import RunFolder, Store
from unmask.store.run_folder import WorkerSettings

OWN = {"kind": "custom", "target": "engines_policy:Policy"}


class Planned:
    """Runs of one checkpoint, and what a worker has loaded for the first of them."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder, self.memory = folder, LoadedEngines()
        self.lock = folder / "recipe.lock"
        checkpoint = locked_checkpoint(str(model), model)
        fields = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
        self.lock.write_text(as_text(Lock(**fields)))

    def run(self, seed: int = 0, device: str | None = None, **changes: Any) -> RunFolder:
        identity = {
            "kind": "accuracy",
            "seed": seed,
            "weights": read_lock(self.lock).weights,
            "dtype": "float32",
            "mask_token_id": 7,
            "decode": {},
            "policy": {"kind": "full"},
        }
        settings = WorkerSettings(lock=str(self.lock), device=device)
        return Store(self.folder / "store").run({**identity, **changes}, settings)

    def load(self, run: RunFolder) -> Any:
        return self.memory.load(run, checkpoints_of(run.identity, read_lock(self.lock)))[""]


@pytest.fixture
def planned(text_model: Path, tmp_path: Path) -> Planned:
    return Planned(text_model, tmp_path)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "engines_policy", raising=False)

    def write(act: str) -> None:
        (tmp_path / "engines_policy.py").write_text(
            f"class Policy:\n    def plan(self, view):\n        {act}\n"
        )

    return write


def test_a_checkpoint_is_loaded_once(planned: Planned) -> None:
    first, second = planned.run(), planned.run(1)
    assert planned.memory.suit(first)
    engine = planned.load(first)
    assert planned.memory.suit(second)
    assert planned.load(second) is engine


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bfloat16"},
        {"mask_token_id": 8},
        {"device": "meta"},
        {"kind": "timing", "configurations": {}},
        {"weights": "unknown"},
        {"policy": {"kind": "no such policy"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_loaded_needs_a_fresh_worker(planned: Planned, change: dict[str, Any]) -> None:
    planned.load(planned.run())
    assert not planned.memory.suit(planned.run(**change))


def test_a_lock_that_was_written_anew_needs_a_fresh_worker(planned: Planned) -> None:
    planned.load(planned.run())
    lock = read_lock(planned.lock)
    planned.lock.write_text(as_text(msgspec.structs.replace(lock, versions={"gsm8k": "4.0"})))
    assert not planned.memory.suit(planned.run(1))
    last = planned.run(1)
    planned.lock.unlink()
    assert not planned.memory.suit(last)


def test_source_that_was_edited_needs_a_fresh_worker(planned: Planned, policy: Callable[[str], None]) -> None:
    policy("return 1")
    own, other = planned.run(policy=OWN), planned.run(1, policy=OWN)
    planned.load(own)
    assert planned.memory.suit(other)
    policy("return 2 + 2")
    assert not planned.memory.suit(other)
    assert planned.memory.suit(planned.run(2))


def test_after_memory_ran_out_every_run_needs_a_fresh_worker(planned: Planned) -> None:
    planned.load(planned.run())
    with warnings.catch_warnings(record=True) as shown, planned.memory.watching_memory():
        warnings.simplefilter("always")
        warnings.warn("Something else.", stacklevel=1)
        assert planned.memory.suit(planned.run(1))
        warnings.warn("The batch is halved.", MemoryRanOutWarning, stacklevel=1)
    assert len(shown) == 2
    assert not planned.memory.suit(planned.run(1))


# Hashes of weights.


@pytest.fixture
def spoiled(text_model: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(text_model, tmp_path / "spoiled"))


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def count(file: Path) -> str:
        names.append(file.name)
        return file_sha256(file)

    monkeypatch.setattr(lock_module, "file_sha256", count)
    return names


def age(file: Path, nanoseconds: int = 0) -> None:
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10_000_000_000 + nanoseconds))


def test_weights_are_hashed_once_for_all_workers_of_a_machine(
    spoiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = spoiled / "model.safetensors"
    age(weights)
    checkpoint = locked_checkpoint(str(spoiled), spoiled)
    names = hashed(monkeypatch)
    for _ in range(3):
        check_checkpoint(checkpoint, spoiled)
        assert weights_sha256(spoiled) == checkpoint.files[weights.name]
    assert names.count(weights.name) == 1
    assert names.count("config.json") == 3
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    age(weights, 5)
    with pytest.raises(Exception, match="is not the file that was locked"):
        check_checkpoint(checkpoint, spoiled)


def test_a_file_in_its_place_with_the_same_size_and_time_is_hashed_again(spoiled: Path) -> None:
    weights = spoiled / "model.safetensors"
    age(weights)
    before, status = weights_sha256(spoiled), weights.stat()
    other = spoiled / "other"
    other.write_bytes(bytes(len(weights.read_bytes())))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(weights)
    assert weights.stat().st_mtime_ns == status.st_mtime_ns
    assert weights_sha256(spoiled) != before


def test_a_file_that_was_written_into_and_given_its_time_back_is_hashed_again(spoiled: Path) -> None:
    weights = spoiled / "model.safetensors"
    age(weights)
    before, status = weights_sha256(spoiled), weights.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([weights.read_bytes()[-1] ^ 1]))
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (weights.stat().st_mtime_ns, weights.stat().st_ino) == (status.st_mtime_ns, status.st_ino)
    assert weights_sha256(spoiled) != before


def test_a_file_that_changed_a_moment_ago_is_not_remembered(
    spoiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spoiled / "model.safetensors").touch()
    names = hashed(monkeypatch)
    weights_sha256(spoiled)
    weights_sha256(spoiled)
    assert names == ["model.safetensors"] * 2
