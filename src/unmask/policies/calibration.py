"""Reads what `unmask probe` recorded: the layers whose replay would have been wrong by the least, and the steps.

The one reader of traces. It does not know how a trace is recorded.
"""

import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError
from unmask.reading import open_plain

MOST_ARRAY = 1 << 30
"""Bytes of one array of a trace."""
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def calmest_layers(trace: str | Path, unit: str, share: float, layers: int) -> tuple[int, ...]:
    """The `share` of all layers with the smallest mean replay error of a unit, in a trace of `unmask probe`."""
    path = Path(trace)
    if not path.is_file():
        raise UnmaskError(f"{path}: no such trace; write one with `unmask probe --output {path}`.")
    errors = _array(path, f"error_{unit}")
    if errors is None or errors.ndim != 3 or not np.issubdtype(errors.dtype, np.floating):
        raise UnmaskError(
            f"{path} is no trace of `unmask probe` with errors of unit {unit!r}; record it again."
        )
    if errors.shape[1] != layers:
        raise UnmaskError(f"{path} was recorded with {errors.shape[1]} layers but this model has {layers}.")
    if np.isnan(errors).all(axis=(0, 2)).any():
        raise UnmaskError(
            f"{path} compares no two steps of a block; record longer answers with `unmask probe`."
        )
    means = np.nanmean(errors, axis=(0, 2))
    count = max(1, round(share * layers))
    return tuple(sorted(int(layer) for layer in np.argsort(means, kind="stable")[:count]))


def recorded_steps(trace: Path) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """For each denoising step of a trace, how many positions it made known and whether the leftmost was among them."""
    unmasked, leftmost = _array(trace, "unmasked"), _array(trace, "leftmost")
    readable = (
        unmasked is not None
        and leftmost is not None
        and np.issubdtype(unmasked.dtype, np.integer)
        and leftmost.dtype == bool
        and unmasked.ndim == 1
        and unmasked.shape == leftmost.shape
        and len(unmasked) > 0
        and unmasked.min() >= 1
    )
    if not readable or unmasked is None or leftmost is None:
        raise UnmaskError(f"{trace} is no trace; write one with `unmask probe --output {trace}`.")
    return tuple(unmasked.tolist()), tuple(leftmost.tolist())


def _array(path: Path, name: str) -> NDArray[Any] | None:
    """An array of an .npz file, whose header must not promise more than is there; None where there is none."""
    try:
        with open_plain(path) as stream, zipfile.ZipFile(stream) as archive:
            length = archive.getinfo(f"{name}.npy").file_size
            if length > MOST_ARRAY:
                return None
            with archive.open(f"{name}.npy") as file:
                shape, by_columns, dtype = HEADERS[np.lib.format.read_magic(file)](file)
                if dtype.hasobject or prod(shape) * dtype.itemsize > length:
                    return None
                values: NDArray[Any] = np.frombuffer(file.read(), dtype, prod(shape))
    except Exception:  # a broken archive or header raises whatever the libraries came to
        return None
    return values.reshape(shape, order="F" if by_columns else "C")
