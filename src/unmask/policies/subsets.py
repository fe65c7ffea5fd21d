"""Which layers a spec means: named subsets, indices and ranges."""

import re
from collections.abc import Sequence

from unmask.errors import UnmaskError

INDEX = re.compile("[0-9]{1,6}")
SEED_SIZE = 12
"""Layers of a named subset in the published experiments, all of them on 28-layer models."""


def default_size(layers: int) -> int:
    """Twelve layers, or a third of a model in which twelve and the first one do not fit."""
    return SEED_SIZE if layers > SEED_SIZE else max(1, layers // 3)


def named_subset(name: str, size: int | None, layers: int) -> tuple[int, ...]:
    """First (layer 0 is kept out), middle or last `size` layers; all three have the same size."""
    count = default_size(layers) if size is None else size
    if not 1 <= count < layers:
        raise UnmaskError(
            f"size is {count}; this model has {layers} layers, so it must lie between 1 and {layers - 1}."
        )
    start = {"first": 1, "middle": (layers - count) // 2, "last": layers - count}[name]
    return tuple(range(start, start + count))


def listed_layers(items: Sequence[int | str], layers: int) -> tuple[int, ...]:
    """Indices and ranges ("4-9" is 4 to 9) as a sorted tuple without repetition."""
    chosen: set[int] = set()
    for item in items:
        part = _range(item) if isinstance(item, str) else range(item, item + 1)
        if part.start < 0 or part.stop > layers:
            raise UnmaskError(f"layers names {item}; this model has layers 0 to {layers - 1}.")
        chosen.update(part)
    if not chosen:
        raise UnmaskError(f"layers names no layer; this model has layers 0 to {layers - 1}.")
    return tuple(sorted(chosen))


def _range(item: str) -> range:
    first, dash, last = item.partition("-")
    if not (INDEX.fullmatch(first) and (INDEX.fullmatch(last) or not dash)) or int(first) > int(
        last or first
    ):
        raise UnmaskError(f"layers has {item!r}; write an index such as 4 or a range such as '4-9'.")
    return range(int(first), int(last or first) + 1)
