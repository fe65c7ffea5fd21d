"""How requests with different plans share a forward: whose turn it is, and which of them run in each layer.

A part of a forward is a run of neighbouring requests with one plan. Rows are independent, so each layer runs
on the parts that compute there, and *when* a request takes its step is free: requests that replay go ahead of
the others where that spares weights, and those who wait for each other are in step from then on. Works on
plans and pieces alone, without tensors; the plan of a request never depends on the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from unmask.engine.schedule import Piece
from unmask.engine.step_plan import FULL, Feature, Op, Span, StepPlan, Unit, spans

Parts = tuple[int, ...]
"""Numbers of parts of a forward, in order."""
Named = tuple[tuple[Feature, Parts], ...]
"""Features, and the parts that have to do with each."""


@dataclass(frozen=True, slots=True)
class BranchWork:
    """Who runs through one branch of a layer, who keeps its change, and to whom the change is put back."""

    computes: Parts
    remembers: Parts
    replays: Parts


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What happens at one layer, in this order."""

    selects: Parts
    """Parts that go on with some of their rows."""
    measures: Parts
    """Parts whose input is compared with the one remembered."""
    renews: Parts
    """Those of them whose input is remembered."""
    replays: Named
    """Changes of spans that begin here, put back."""
    begins: Named
    """Spans that begin here and whose change is remembered."""
    attention: BranchWork
    mlp: BranchWork
    ends: Named
    """Those that end behind this layer."""


@lru_cache(maxsize=1024)
def layer_works(plans: tuple[StepPlan, ...], layers: int) -> tuple[LayerWork, ...]:
    """What parts with these plans do in each layer; plans that replay the output have no place among them."""
    cut = [spans(plan) or (Span(0, layers, Op.COMPUTE),) for plan in plans]
    return tuple(_layer_work(plans, cut, layer) for layer in range(layers))


def _layer_work(plans: Sequence[StepPlan], cut: Sequence[tuple[Span, ...]], layer: int) -> LayerWork:
    here = [next(span for span in each if span.start <= layer < span.stop) for each in cut]

    def parts(chosen: Callable[[StepPlan, Span], bool]) -> Parts:
        both = enumerate(zip(plans, here, strict=True))
        return tuple(number for number, (plan, span) in both if chosen(plan, span))

    def named(op: Op, at: Callable[[Span], int]) -> Named:
        of_feature: dict[Feature, list[int]] = {}
        for number in parts(lambda plan, span: plan.unit is Unit.RESIDUAL and span.op is op):
            span = here[number]
            if at(span) == layer:
                of_feature.setdefault((Unit.RESIDUAL, span.start, span.stop), []).append(number)
        return tuple((feature, tuple(numbers)) for feature, numbers in of_feature.items())

    def branch(unit: Unit) -> BranchWork:
        return BranchWork(
            parts(lambda plan, span: not (span.op is Op.REPLAY and plan.unit in (Unit.RESIDUAL, unit))),
            parts(lambda plan, span: span.op is Op.REFRESH and plan.unit is unit),
            parts(lambda plan, span: span.op is Op.REPLAY and plan.unit is unit),
        )

    return LayerWork(
        parts(lambda plan, _: plan.rows is not None and plan.rows.probe_layer == layer),
        parts(lambda plan, _: plan.drift),
        parts(lambda plan, span: plan.drift and span.op is not Op.REPLAY),
        named(Op.REPLAY, lambda span: span.start),
        named(Op.REFRESH, lambda span: span.start),
        branch(Unit.ATTENTION),
        branch(Unit.MLP),
        named(Op.REFRESH, lambda span: span.stop - 1),
    )


@lru_cache(maxsize=4096)
def _branches(plans: frozenset[StepPlan], layers: int) -> int:
    """Branches that run for at least one of these plans: what a forward of theirs reads of the weights."""
    works = layer_works(tuple(plans), layers)
    return sum(bool(work.attention.computes) + bool(work.mlp.computes) for work in works)


@lru_cache(maxsize=4096)
def _place(plan: StepPlan, layers: int) -> tuple[int, str]:
    return (0 if plan.replays_everything else -_branches(frozenset([plan]), layers)), repr(plan)


def in_order(pieces: Sequence[Piece], layers: int) -> list[Piece]:
    """Pieces as a forward takes them: equal plans together, those that compute most first.

    So those that run in a layer are mostly the first rows, a view. Among equal plans, neighbouring slots
    that see equally far share an attention call.
    """

    def place(piece: Piece) -> tuple[tuple[int, str], int, int, int]:
        plan = piece.plan.shared
        computed = (-2 * layers, "") if plan is FULL else _place(plan, layers)
        return computed, len(piece.positions), piece.sequence.stop, piece.sequence.slot

    return sorted(pieces, key=place)


def whose_turn(pieces: Sequence[Piece], layers: int) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """The pieces that go now, and those that wait for a later turn.

    Requests that replay everything read no layer at all, so they always go ahead. Others that replay go
    ahead where the weights that they alone would read are a share of all weights no larger than theirs of
    the rows; else everybody goes together. Nobody waits for ever: the first step of a block is computed.
    """
    now = [piece for piece in pieces if piece.plan.replays_everything]
    if not now:
        now = [piece for piece in pieces if Op.REPLAY in piece.plan.ops]
        plans = frozenset(piece.plan.shared for piece in now)
        if not now or _rows(now) * 2 * layers < _branches(plans, layers) * _rows(pieces):
            return pieces, ()
    chosen = {piece.sequence for piece in now}
    return now, [piece for piece in pieces if piece.sequence not in chosen]


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.positions) for piece in pieces)
