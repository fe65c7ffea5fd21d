"""A checkpoint may be anybody's: nothing is allocated, opened or waited for because a file of it says so."""

import json
import os
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints import change_config, write_small
from unmask.errors import UnmaskError
from unmask.evaluation.lock import file_sha256
from unmask.loading import load
from unmask.model.checkpoint import open_checkpoint

FILES = ("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json")
ROOM = 1 << 30


@pytest.fixture(autouse=True)
def _little_time_and_memory() -> Iterator[None]:
    """What hangs or takes a gigabyte more than the test began with fails."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    signal.alarm(60)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    signal.alarm(0)


def refused(folder: Path) -> str:
    with pytest.raises(UnmaskError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "many layers": ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000; this engine takes 1024"),
    "a large block": ({"bd_size": 10**9}, "bd_size is 1000000000; this engine takes 4096"),
    "a word for a number": ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x'; a positive, finite number"),
    "no number": ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    "no base": ({"rope_theta": 0}, "rope_theta is 0"),
    "a word for a flag": ({"tie_word_embeddings": "maybe"}, "tie_word_embeddings is 'maybe'; true or false"),
    "a large mask": ({"mask_token_id": 10**9}, "mask token 1000000000 is outside the vocabulary"),
    "a long word": ({"hidden_act": "x" * 10**6}, "hidden_act is 'xxx"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_in_a_config_is_refused(tmp_path: Path, case: str) -> None:
    changes, words = NONSENSE[case]
    sentence = refused(change_config(write_small(tmp_path / "model"), **changes))
    assert words in sentence
    assert len(sentence) < 500


@pytest.mark.parametrize("name", ["../outside/model.safetensors", "/dev/zero", "..", "", "a/b", "a\0b"])
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: str) -> None:
    folder = write_small(tmp_path / "model")
    write_small(tmp_path / "outside")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "weight_map must name a file of this folder" in refused(folder)


@pytest.mark.parametrize("special", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", FILES)
def test_a_special_file_is_not_waited_for(tmp_path: Path, name: str, special: str) -> None:
    folder = write_small(tmp_path / "model")
    file = folder / name
    file.unlink(missing_ok=True)
    if special == "pipe":
        os.mkfifo(file)
    elif special == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    if name in ("generation_config.json", "model.safetensors.index.json"):  # neither of the two must be there
        assert open_checkpoint(folder).config.num_layers == 2
    else:
        refused(folder)
    if special != "folder":
        with pytest.raises(OSError, match="a pipe or a device"):
            file_sha256(file)


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, 10**9])
def test_a_header_is_no_larger_than_its_file(tmp_path: Path, length: int) -> None:
    folder = write_small(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    assert "is cut short or not a safetensors file" in refused(folder)


def test_a_sparse_file_with_a_large_header_is_refused(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "model")
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", 1 << 40))
        stream.truncate(1 << 41)
    assert "is cut short or not a safetensors file" in refused(folder)


def test_a_large_config_is_not_read(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "model")
    with (folder / "config.json").open("wb") as stream:
        stream.truncate(1 << 41)
    assert "larger than" in refused(folder)
