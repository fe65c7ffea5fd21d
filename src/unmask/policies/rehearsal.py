"""A decoding without a model: the same sequences, settings and plans, with a script in place of logits.

What it counts is what the engine would count for the same steps, so savings and dead plans are known
before anything runs. Measured drift is taken as zero: the most an adaptive policy can ever reuse.
"""

from dataclasses import dataclass
from itertools import cycle

from unmask.cost import Ledger
from unmask.engine.policy import Policy
from unmask.engine.schedule import Piece, count_work, keys_written, measures_drift, next_piece, remember
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.engine.step_plan import DENOISING, FULL, Kind
from unmask.spec.family import FAST_DLLM_V2, CacheName, Family

MASK, TOKEN = -1, 0


@dataclass(frozen=True, slots=True)
class Script:
    """How a decoding is assumed to go."""

    prompt_tokens: int = 128
    new_tokens: int = 256
    block_size: int | None = 32
    """None: prompt and answer are one block."""
    sub_block_size: int | None = 8
    cache: CacheName = "dual"
    refresh_every: int | None = None
    guidance: float = 0.0
    unmasked: tuple[int, ...] = (3, 3, 2, 2, 2, 2, 2)
    """How many positions each denoising step unmasks, in order and then from the start again.

    The default (14 steps a block) is about what a trained model does at threshold 0.9; a probe's
    trace knows what yours does.
    """
    leftmost: tuple[bool, ...] | None = None
    """Whether the first unknown position is among them, in the same order; if not, the last ones are taken.

    A step that leaves the first position of a sub-block unknown is followed by a full-block step. None: not known; a
    ceiling then takes the better of both extremes, and a rehearsal by itself takes it to be always among them.
    """
    family: Family = FAST_DLLM_V2
    answered: int | None = None
    """New tokens after which the answer has ended; None: it runs to its limit."""


def rehearse(policy: Policy, layers: int, script: Script) -> Ledger:
    """Walk a policy through the script and return the work it would do."""
    settings = BlockSettings(
        script.block_size,
        script.sub_block_size,
        script.cache,
        MASK,
        frozenset(),
        script.family,
        script.refresh_every,
        script.guidance,
    )
    sequence = SequenceState(0, [TOKEN] * script.prompt_tokens, script.new_tokens, settings, layers)
    steps = cycle(zip(script.unmasked, cycle(script.leftmost or (True,)), strict=False))
    end = sequence.end if script.answered is None else script.prompt_tokens + script.answered
    while not sequence.finish_reason and sequence.known_until < end:
        if sequence.needs_prefill:
            piece = Piece(
                sequence,
                Kind.PREFILL,
                FULL,
                sequence.positions(Kind.PREFILL),
                sequence.start,
                sequence.read_positions(Kind.PREFILL),
            )
        else:
            piece = next_piece(sequence, policy, layers)
        count_work(piece, layers)
        if measures_drift(piece):
            sequence.drift = (0.0,) * layers
        remember(piece)
        sequence.fed(piece.kind, keys_written(piece))
        positions = piece.reads
        if piece.kind in DENOISING and not piece.opens:
            count, leftmost = next(steps)
            positions = positions[:count] if leftmost else positions[-count:]
        for position in positions:
            sequence.write(position, TOKEN)
        sequence.settle()
    return sequence.ledger
