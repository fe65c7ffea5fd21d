"""Which forward each row takes next, what it costs, and whether its plan is allowed.

Works on row states and plans alone, so a whole decoding can be rehearsed without weights or torch
(see policies/rehearsal.py): what is counted there is what the engine counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.cost import Work
from unmask.engine.policy import Full, Policy, StepView
from unmask.engine.row import Row
from unmask.engine.step_plan import FULL, Kind, Op, StepPlan, Unit, features, spans
from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True)
class Piece:
    """One row's share of a forward: the columns fed and those predicted from it."""

    row: Row
    kind: Kind
    plan: StepPlan
    columns: Sequence[int]
    """Columns that are fed, those that always run first."""
    always: int
    """How many of them run through every layer whatever the probe says."""
    reads: list[int]

    @property
    def kept(self) -> int:
        """Rows that run through the layers from the probed one on."""
        return self.always + (self.plan.rows.count if self.plan.rows else 0)


def next_piece(row: Row, policy: Policy, layers: int) -> Piece:
    """Ask the policy about a row's next forward and check its answer."""
    kind = row.next_kind()
    if kind is Kind.COMMIT or isinstance(policy, Full):
        plan = FULL
    else:
        plan = policy.plan(view_of(row, kind, layers))
    columns: Sequence[int] = row.columns(kind)
    reads = row.read_columns(kind)
    if plan is FULL:
        return Piece(row, kind, plan, columns, len(columns), reads)
    always = len(columns)
    if plan.rows is not None:
        columns, always = _chosen_columns(row, columns, reads, plan)
    piece = Piece(row, kind, plan, columns, always, reads)
    _check(piece, layers)
    return piece


def view_of(row: Row, kind: Kind, layers: int) -> StepView:
    """What a policy may know of a row."""
    start, sub_block = row.start, row.sub_block
    return StepView(
        kind=kind,
        layers=layers,
        block=row.blocks_done,
        block_size=row.rules.block_size,
        step=row.step,
        block_steps=row.block_steps,
        sub_block=range(sub_block.start - start, sub_block.stop - start),
        masked=tuple(column - start for column in row.masked(range(start, row.stop))),
        changed=tuple(sorted(column - start for column in row.changed)),
        ages=tuple(row.ages),
        drift=row.drift,
    )


def work_of(piece: Piece, layers: int) -> Work:
    """What the forward costs this row; a prefill counts once, when its last block is through."""
    row, kind, plan = piece.row, piece.kind, piece.plan
    size = row.rules.block_size
    if kind is Kind.PREFILL:
        blocks = row.start // size
        return Work("prefill", row.start, size * size * blocks * (blocks + 1) // 2, len(piece.reads))
    rows = len(row.columns(kind))
    pairs, reads = rows * row.stop, len(piece.reads)
    if plan is FULL:
        return Work(kind.value, rows, pairs, reads)
    probed = plan.rows.probe_layer if plan.rows and plan.rows.count else 0
    fed = [len(piece.columns) if layer < (probed or 0) else piece.kept for layer in range(layers)]
    attention = tuple(0 if _replays(plan, layer, Unit.ATTENTION) else fed[layer] for layer in range(layers))
    mlp = tuple(0 if _replays(plan, layer, Unit.MLP) else fed[layer] for layer in range(layers))
    return Work(kind.value, rows, pairs, reads, attention, mlp)


def remember(piece: Piece) -> None:
    """Note which features the forward left behind, and how old each layer's last computation is."""
    row, plan = piece.row, piece.plan
    if plan.ops:
        positions = _bits(piece.columns[: piece.always], row.start)
        for feature in features(plan, Op.REFRESH):
            row.remembered[feature] = row.remembered.get(feature, 0) | positions
        ages = row.ages or [0] * len(plan.ops)
        row.ages = [age + 1 if op is Op.REPLAY else 0 for age, op in zip(ages, plan.ops, strict=True)]


def _replays(plan: StepPlan, layer: int, branch: Unit) -> bool:
    if plan.replays_everything:
        return True
    if not plan.ops or plan.ops[layer] is not Op.REPLAY:
        return False
    return plan.unit in (Unit.RESIDUAL, branch)


def _chosen_columns(
    row: Row, columns: Sequence[int], reads: Sequence[int], plan: StepPlan
) -> tuple[Sequence[int], int]:
    assert plan.rows is not None
    always = [row.start + position for position in plan.rows.always]
    among = [row.start + position for position in plan.rows.among] if plan.rows.count else []
    allowed = set(columns)
    if not allowed.issuperset(always) or not allowed.issuperset(among) or set(always) & set(among):
        raise UnmaskError(
            "The policy's rows do not fit the step: they must be distinct positions that it feeds."
        )
    if not set(always).issuperset(column - 1 for column in reads):
        raise UnmaskError(
            "The policy leaves out a row whose logits are read: keep the predecessors of masked rows."
        )
    if plan.rows.count > len(among):
        raise UnmaskError(f"The policy asks for {plan.rows.count} of {len(among)} rows; lower the count.")
    if not among and always == list(range(always[0], always[-1] + 1)):
        return range(always[0], always[-1] + 1), len(always)
    return always + among, len(always)


def _check(piece: Piece, layers: int) -> None:
    """Refuse a plan of the wrong length and a replay of what was not computed for these rows in this block."""
    row, plan = piece.row, piece.plan
    if plan.ops and len(plan.ops) != layers:
        raise UnmaskError(f"The policy planned {len(plan.ops)} layers but the model has {layers}.")
    probe_layer = plan.rows.probe_layer if plan.rows else None
    if plan.rows and plan.rows.count and probe_layer is None:
        raise UnmaskError("A policy that chooses rows by drift must name a probe layer.")
    if probe_layer is not None:
        if not 0 < probe_layer < layers:
            raise UnmaskError(f"The probe layer is {probe_layer}; it must lie between 1 and {layers - 1}.")
        if any(span.start < probe_layer and span.op is not Op.COMPUTE for span in spans(plan)):
            raise UnmaskError(
                "Layers below the probe layer must be computed: they tell which rows have drifted."
            )
    needed = _bits(piece.columns, row.start)
    for unit, start, stop in features(plan, Op.REPLAY):
        if needed & ~row.remembered.get((unit, start, stop), 0):
            raise UnmaskError(
                f"The policy replays the {unit.value} of layers {start} to {stop - 1} for rows that were not "
                "refreshed in this block; plan a REFRESH first."
            )


def _bits(columns: Sequence[int], start: int) -> int:
    bits = 0
    for column in columns:
        bits |= 1 << (column - start)
    return bits
