"""A trace may be anybody's: an array is no larger than its file says, and nothing in it is executed."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmask.errors import UnmaskError
from unmask.policies.calibration import calmest_layers, recorded_steps

ROWS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def header(**changes: Any) -> bytes:
    """The beginning of an array that claims more than it has."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (2, 3, 4), **changes}
    )
    return stream.getvalue()


def written(file: Path, content: bytes, **options: Any) -> Path:
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr("error_output.npy", content)
    return file


BROKEN = {
    "a large shape": header(shape=(10**6, 3, 10**6)),
    "a negative shape": header(shape=(-2, 3, -4)),
    "a large element": header(descr="<U1000000000"),
    "an object": header(descr="|O") + pickle.dumps([print]) * 9,
    "no header": b"x" * 100,
    "a version of its own": b"\x93NUMPY\x09\x00" + b"x" * 100,
    "deep brackets": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
    "nothing": b"",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_array_is_one_sentence(tmp_path: Path, case: str) -> None:
    with pytest.raises(UnmaskError, match="is no trace of `unmask probe`"):
        calmest_layers(written(tmp_path / "trace.npz", BROKEN[case]), "output", 0.5, 3)


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "trace.npz"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("error_output.npy", "w", force_zip64=True) as member,
    ):
        member.write(header(shape=(1 << 18, 3, 1 << 10)))
        for _ in range(1100):
            member.write(bytes(1 << 20))
    assert file.stat().st_size < 4 << 20
    with pytest.raises(UnmaskError, match="is no trace of `unmask probe`"):
        calmest_layers(file, "output", 0.5, 3)


@pytest.mark.parametrize("by_columns", [False, True])
def test_arrays_of_either_order_are_read(tmp_path: Path, by_columns: bool) -> None:
    file = tmp_path / "trace.npz"
    array = np.asfortranarray(ROWS) if by_columns else ROWS
    np.savez(file, error_output=array, unmasked=np.array([1, 2]), leftmost=np.array([True, False]))
    assert calmest_layers(file, "output", 0.5, 3) == (0, 1)
    assert recorded_steps(file) == ((1, 2), (True, False))
