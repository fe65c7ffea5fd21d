"""Reads what `unmask probe` recorded: the layers whose replay would have been wrong by the least, and the steps.

The one reader of traces. It does not know how a trace is recorded.
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError


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
    """An array of an .npz file; None where there is none."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            values: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (KeyError, OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    return values
