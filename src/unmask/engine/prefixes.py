"""Which prompt blocks every slot holds, so that a prompt that begins alike takes them over instead of feeding them.

Attention runs from block to block, so the keys of a whole block depend on nothing behind it. Slots keep
what they hold after their sequence has left. Knows tokens and slots, no tensors.
"""

from collections.abc import Sequence

from unmask.engine.sequence import SequenceState


class Prefixes:
    """The tokens whose keys and values lie in the first positions of every slot."""

    def __init__(self, slots: int) -> None:
        self.held: list[Sequence[int]] = [()] * slots

    def ready(self, sequences: Sequence[SequenceState]) -> tuple[list[SequenceState], list[SequenceState]]:
        """Sequences to prefill now, and those that gain by waiting for one of them."""
        now: list[SequenceState] = []
        later: list[SequenceState] = []
        for sequence in sequences:
            present = self.longest(sequence)[1]
            promised = max((shared(sequence, other.tokens[: other.start]) for other in now), default=0)
            (later if promised > present else now).append(sequence)
        return now, later

    def longest(self, sequence: SequenceState) -> tuple[int, int]:
        """The slot that holds most of a sequence's prompt, and how many positions of it; its own slot where equal."""
        slot = max(
            range(len(self.held)), key=lambda slot: (shared(sequence, self.held[slot]), slot == sequence.slot)
        )
        return slot, shared(sequence, self.held[slot])

    def keep(self, slot: int, tokens: Sequence[int]) -> None:
        """Note what a slot holds from now on."""
        self.held[slot] = tokens


def shared(sequence: SequenceState, tokens: Sequence[int]) -> int:
    """Positions in whole blocks that a sequence's prompt has in common with these tokens.

    The last block of a prompt is always fed, because the first token may be read from it, and so is every row that
    something is read from.
    """
    size = sequence.block_size
    most = min(len(tokens), sequence.start - size, sequence.source(sequence.reads_from))
    return common(sequence.tokens, tokens, max(most, 0)) // size * size


def common(first: Sequence[int], second: Sequence[int], most: int) -> int:
    """How many of the first `most` tokens are the same from the start on."""
    same = 0
    while same < most:
        step = (most - same + 1) // 2
        if first[same : same + step] == second[same : same + step]:
            same += step
        else:
            most = same + step - 1
    return same
