"""Which forward each sequence takes next, what it costs, and whether its plan is allowed.

Works on states of sequences and plans alone, so a whole decoding can be rehearsed without weights or torch
(see policies/rehearsal.py): what is counted there is what the engine counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from unmask.cost import Work
from unmask.engine.ages import covers, layer_ages, offset_bits, refreshed
from unmask.engine.policy import Full, Policy, StepView
from unmask.engine.sequence import SequenceState
from unmask.engine.step_plan import DENOISING, FULL, Kind, Op, StepPlan, Unit, features, spans
from unmask.errors import UnmaskError

STAIRCASE_BELOW = 16
"""Blocks smaller than this are prefilled several at a time (docs/performance.md)."""
STAIRCASE_ROWS = 128


@dataclass(frozen=True, slots=True)
class Piece:
    """One sequence's share of a forward: the positions fed and those predicted from it."""

    sequence: SequenceState
    kind: Kind
    plan: StepPlan
    positions: Sequence[int]
    """Columns that are fed, those that always run first."""
    always: int
    """How many of them run through every layer whatever the probe says."""
    reads: list[int]
    opens: bool = False
    """Whether what it predicts is written without asking a rule (see `SequenceState.opens`)."""

    @property
    def is_last(self) -> bool:
        """Whether it ends the sequence's forward: only a prompt is fed in several pieces, of which the last counts."""
        return self.kind is not Kind.PREFILL or self.positions[-1] + 1 == self.sequence.start

    @property
    def kept(self) -> int:
        """Rows that run through the layers from the probed one on."""
        return self.always + (self.plan.rows.count if self.plan.rows else 0)


def next_piece(sequence: SequenceState, policy: Policy, layers: int) -> Piece:
    """Ask the policy about a sequence's next forward and check its answer."""
    kind = sequence.next_kind()
    if kind is Kind.COMMIT or isinstance(policy, Full):
        plan = FULL
    else:
        plan = _answer(policy, view_of(sequence, kind, layers))
    positions: Sequence[int] = sequence.positions(kind)
    reads = sequence.read_positions(kind)
    if plan is FULL:
        return Piece(sequence, kind, plan, positions, len(positions), reads, sequence.opens)
    always = len(positions)
    if plan.rows is not None:
        positions, always = _chosen_positions(sequence, positions, reads, plan)
    piece = Piece(sequence, kind, plan, positions, always, reads, sequence.opens)
    _check(piece, layers)
    return piece


def _answer(policy: Policy, view: StepView) -> StepPlan:
    plan = policy.plan(view)
    if not isinstance(plan, StepPlan):
        raise UnmaskError(
            f"The policy answered with {type(plan).__name__}; plan(view) must return a StepPlan."
        )
    return FULL if plan == FULL else plan


def view_of(sequence: SequenceState, kind: Kind, layers: int) -> StepView:
    """What a policy may know of a sequence."""
    start, sub_block = sequence.start, sequence.sub_block
    refreshes = tuple(sequence.remembered.items())
    fed = sequence.positions(kind)
    bits = offset_bits(fed, start) if refreshes else 0
    return StepView(
        kind=kind,
        layers=layers,
        block=sequence.blocks_done,
        block_size=sequence.block_size,
        step=sequence.step,
        block_steps=sequence.block_steps,
        sub_block=range(sub_block.start - start, sub_block.stop - start),
        masked=tuple(position - start for position in sequence.masked(range(start, sequence.stop))),
        fed=range(fed.start - start, fed.stop - start),
        read=tuple(sequence.source(position) - start for position in sequence.read_positions(kind)),
        changed=tuple(sorted(position - start for position in sequence.changed)),
        ages=layer_ages(refreshes, bits, sequence.step, layers),
        drift=sequence.drift,
        refreshes=refreshes,
    )


def work_of(piece: Piece, layers: int) -> Work:
    """What the forward costs this sequence; a prefill counts once, when its last block is through."""
    sequence, kind, plan = piece.sequence, piece.kind, piece.plan
    if kind is Kind.PREFILL:
        reads = len(sequence.read_positions(kind))
        return prompt_work(range(sequence.prefilled, sequence.start), sequence.block_size, reads)
    rows = len(sequence.positions(kind))
    pairs, reads = rows * sequence.stop, len(piece.reads)
    if plan is FULL:
        return Work(kind.value, rows, pairs, reads)
    probed = plan.rows.probe_layer if plan.rows and plan.rows.count else 0
    fed = [len(piece.positions) if layer < (probed or 0) else piece.kept for layer in range(layers)]
    attention = tuple(0 if _replays(plan, layer, Unit.ATTENTION) else fed[layer] for layer in range(layers))
    mlp = tuple(0 if _replays(plan, layer, Unit.MLP) else fed[layer] for layer in range(layers))
    whole = (rows,) * layers
    return Work(
        kind.value,
        rows,
        pairs,
        reads,
        None if attention == whole else attention,
        None if mlp == whole else mlp,
    )


def count_work(piece: Piece, layers: int) -> Work:
    """Add a forward to the sequence's ledger: once for each of its slots, since guidance takes every step twice."""
    work = work_of(piece, layers)
    for _ in range(piece.sequence.settings.slots):
        piece.sequence.ledger.add(work)
    return work


def prompt_work(positions: range, block_size: int, reads: int = 0) -> Work:
    """What feeding some positions of a prompt costs; they are whole blocks."""
    pairs = sum(len(part) * part.stop for part in prompt_parts(positions, block_size))
    return Work("prefill", len(positions), pairs, reads)


def prompt_parts(positions: range, block_size: int) -> list[range]:
    """How whole blocks of a prompt are fed: one by one or, where they are small, several under a staircase mask.

    The parts end at the same positions wherever the first one begins, so that work does not depend on it.
    """
    width = block_size if block_size >= STAIRCASE_BELOW else STAIRCASE_ROWS // block_size * block_size
    ends = range(positions.start // width * width + width, positions.stop, width)
    return [range(*part) for part in pairwise([positions.start, *ends, positions.stop]) if part[0] < part[1]]


def remember(piece: Piece) -> None:
    """Note what a denoising forward left behind, for which offsets; a full plan remembers nothing."""
    sequence, plan = piece.sequence, piece.plan
    if piece.kind not in DENOISING or plan is FULL:
        return
    offsets = offset_bits(piece.positions[: piece.always], sequence.start)
    for feature in features(plan, Op.REFRESH):
        before = sequence.remembered.get(feature, ())
        sequence.remembered[feature] = refreshed(before, sequence.step, offsets)
    for layer in _measured_layers(plan):
        sequence.measured[layer] = sequence.measured.get(layer, 0) | offsets


def keys_written(piece: Piece) -> Sequence[int]:
    """The positions whose keys a forward has surely renewed in every layer.

    A replayed attention writes none, and which competing rows ran is known to the device only.
    """
    if Op.REPLAY in piece.plan.ops and piece.plan.unit is not Unit.MLP:
        return ()
    return piece.positions[: piece.always]


def measures_drift(piece: Piece) -> bool:
    """Whether a forward compares every layer's input with one remembered for the same rows in this block."""
    sequence, plan = piece.sequence, piece.plan
    if not plan.drift or plan.replays_everything:
        return False
    needed = offset_bits(piece.positions, sequence.start)
    return all(not needed & ~sequence.measured.get(layer, 0) for layer in range(sequence.ledger.layers))


def _measured_layers(plan: StepPlan) -> Sequence[int]:
    """Layers whose input the plan remembers."""
    if plan.rows and plan.rows.probe_layer is not None:
        return (plan.rows.probe_layer,)
    if plan.drift and not plan.replays_everything:
        return [layer for layer, op in enumerate(plan.ops) if op is not Op.REPLAY]
    return ()


def _replays(plan: StepPlan, layer: int, branch: Unit) -> bool:
    if plan.replays_everything:
        return True
    if not plan.ops or plan.ops[layer] is not Op.REPLAY:
        return False
    return plan.unit in (Unit.RESIDUAL, branch)


def _chosen_positions(
    sequence: SequenceState, positions: Sequence[int], reads: Sequence[int], plan: StepPlan
) -> tuple[Sequence[int], int]:
    assert plan.rows is not None
    always = [sequence.start + offset for offset in plan.rows.always]
    among = [sequence.start + offset for offset in plan.rows.among] if plan.rows.count else []
    chosen = {*always, *among}
    if not chosen.issubset(positions) or len(chosen) < len(always) + len(among):
        raise UnmaskError(
            "The policy's rows do not fit the step: they must be distinct offsets that it feeds."
        )
    if not set(always).issuperset(map(sequence.source, reads)):
        raise UnmaskError("The policy leaves out a row whose logits are read: keep the offsets of view.read.")
    if not 0 <= plan.rows.count <= len(among):
        raise UnmaskError(f"The policy asks for {plan.rows.count} of {len(among)} rows; correct the count.")
    if not sequence.step and len(always) + plan.rows.count < len(positions):
        raise UnmaskError(
            "The policy leaves out rows at a block's first step, when they have no keys yet; plan all rows."
        )
    if not among and always == list(range(always[0], always[-1] + 1)):
        return range(always[0], always[-1] + 1), len(always)
    return (*always, *among), len(always)


def _check(piece: Piece, layers: int) -> None:
    """Refuse a plan that does not fit the model or needs what was not computed for these rows in this block."""
    sequence, plan = piece.sequence, piece.plan
    if plan.ops and len(plan.ops) != layers:
        raise UnmaskError(f"The policy planned {len(plan.ops)} layers but the model has {layers}.")
    if plan.rows is not None:
        _check_probe(piece, layers)
    if plan.drift and (not plan.ops or plan.merge):
        raise UnmaskError(
            "Drift is measured layer by layer: plan an operation for every layer, with merge=False."
        )
    needed = offset_bits(piece.positions, sequence.start)
    for unit, start, stop in features(plan, Op.REPLAY):
        if not covers(sequence.remembered.get((unit, start, stop), ()), needed):
            raise UnmaskError(
                f"The policy replays the {unit.value} of layers {start} to {stop - 1} for rows that were not "
                "refreshed in this block; plan a REFRESH first."
            )


def _check_probe(piece: Piece, layers: int) -> None:
    sequence, plan = piece.sequence, piece.plan
    assert plan.rows is not None
    probe_layer = plan.rows.probe_layer
    if probe_layer is None:
        if plan.rows.count:
            raise UnmaskError("A policy that chooses rows by drift must name a probe layer.")
        return
    if not 0 < probe_layer < layers:
        raise UnmaskError(f"The probe layer is {probe_layer}; it must lie between 1 and {layers - 1}.")
    if plan.drift:
        raise UnmaskError("A plan with a probe layer cannot measure drift as well; leave one of them out.")
    if any(span.start < probe_layer and span.op is not Op.COMPUTE for span in spans(plan)):
        raise UnmaskError("Layers below the probe layer must be computed: they tell which rows have drifted.")
    competing = offset_bits(piece.positions[piece.always :], sequence.start)
    if competing & ~sequence.measured.get(probe_layer, 0):
        raise UnmaskError(
            f"The policy chooses by drift among rows whose input to layer {probe_layer} was not remembered in "
            "this block; plan them with that probe layer first."
        )
