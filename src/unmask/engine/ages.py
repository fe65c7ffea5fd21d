"""How old the features of a block are: the step in which each was last refreshed, for every offset.

Offsets are sets of bits and steps are integers; which rows hold the features is known to the feature store.
"""

from collections.abc import Iterable, Sequence

from unmask.engine.step_plan import Feature

Refreshes = tuple[tuple[int, int], ...]
"""The steps that refreshed one feature, the oldest first, with a bit for each offset that the step was the last for."""


def refreshed(before: Refreshes, step: int, offsets: int) -> Refreshes:
    """What is known of a feature after a step refreshed it for some offsets."""
    kept = [(earlier, bits & ~offsets) for earlier, bits in before if bits & ~offsets]
    return (*kept, (step, offsets))


def covers(refreshes: Refreshes, offsets: int) -> bool:
    """Whether a feature was refreshed for all these offsets."""
    for _, bits in refreshes:
        offsets &= ~bits
    return not offsets


def layer_ages(
    features: Iterable[tuple[Feature, Refreshes]], offsets: int, step: int, layers: int
) -> tuple[int | None, ...]:
    """For each layer, the age at `step` of the oldest feature that could be put back for these offsets."""
    ages: list[int | None] = [None] * layers
    for (_, start, stop), refreshes in features:
        if not covers(refreshes, offsets):
            continue
        age = step - 1 - next(earlier for earlier, bits in refreshes if bits & offsets)
        for layer in range(start, stop):
            ages[layer] = max(age, ages[layer] or 0)
    return tuple(ages)


def offset_bits(offsets: Sequence[int], start: int = 0) -> int:
    """A bit for each of these positions, counted from `start`."""
    if isinstance(offsets, range) and offsets.step == 1:
        return ((1 << len(offsets)) - 1) << (offsets.start - start)
    bits = 0
    for position in offsets:
        bits |= 1 << (position - start)
    return bits
