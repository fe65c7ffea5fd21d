"""Chooses layers from a recorded trace: those whose replay would have been wrong by the least."""

from pathlib import Path

import numpy as np

from unmask.errors import UnmaskError


def calmest_layers(trace: str | Path, unit: str, share: float, layers: int) -> tuple[int, ...]:
    """The `share` of all layers with the smallest mean replay error of a unit, in a trace of `unmask probe`."""
    path = Path(trace)
    if not path.is_file():
        raise UnmaskError(f"{path}: no such trace; write one with `unmask probe --output {path}`.")
    try:
        with np.load(path) as content:
            errors = content[f"error_{unit}"]
    except (KeyError, OSError, ValueError):
        raise UnmaskError(
            f"{path} is no trace of `unmask probe` with errors of unit {unit!r}; record it again."
        ) from None
    if errors.shape[1] != layers:
        raise UnmaskError(f"{path} was recorded with {errors.shape[1]} layers but this model has {layers}.")
    means = np.nanmean(errors, axis=(0, 2))
    count = max(1, round(share * layers))
    return tuple(sorted(int(layer) for layer in np.argsort(means, kind="stable")[:count]))
