"""Requests with different plans share a forward, and each gets what it would get alone."""

from collections import Counter
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import load_recipe, small_recipe
from policy_cases import (
    BOTH,
    DECODE,
    EXAMPLES,
    LAYERS,
    PROMPTS,
    Recorder,
    adaptive,
    engine,
    prompt,
    reuse,
    trim,
)
from unmask.engine.events import StepEvent
from unmask.engine.forward import PlannedPart, Workspace
from unmask.engine.mixing import whose_turn
from unmask.engine.policy import Full
from unmask.engine.schedule import Piece, next_piece
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.engine.step_plan import DENOISING, FULL, Kind, Op, RowSelection, StepPlan, Unit
from unmask.engine.unmasking import ForcedTokens
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer

BLOCK = 8
RUNNING, KEPT, BACK = Op.COMPUTE, Op.REFRESH, Op.REPLAY


@st.composite
def plans(draw: st.DrawFn) -> tuple[StepPlan, tuple[int, int] | None]:
    """A plan for a whole block, and how many of its rows run in any case or join them."""
    unit = draw(st.sampled_from(Unit))
    if unit is Unit.OUTPUT:
        return StepPlan((draw(st.sampled_from([RUNNING, KEPT])),) * LAYERS, unit), None
    first = draw(st.integers(0, LAYERS - 1))
    stop = draw(st.integers(first, LAYERS))
    acts = [RUNNING] * first + [draw(st.sampled_from([KEPT, BACK]))] * (stop - first)
    ops = (*acts, *[RUNNING] * (LAYERS - stop))
    drift = draw(st.booleans())
    merge = not drift and draw(st.booleans())
    always, count = draw(st.sampled_from([(BLOCK, 0), (BLOCK - 3, 2)]))
    if drift or not first or draw(st.booleans()):
        return StepPlan(ops, unit, merge, drift=drift), None
    rows = RowSelection((), probe_layer=draw(st.integers(1, first)))
    return StepPlan(ops, unit, merge, rows), (always, count)


def parts_of(chosen: list[tuple[StepPlan, tuple[int, int] | None]]) -> list[PlannedPart]:
    return [PlannedPart(plan, 1, () if selection is None else [selection]) for plan, selection in chosen]


def before(
    workspace: Workspace, tokens: list[list[int]], segments: list[Segment], parts: list[PlannedPart]
) -> None:
    """Feed each segment alone, so that everything is remembered that its plan could put back."""
    for number, (part, segment) in enumerate(zip(parts, segments, strict=True)):
        plan = part.plan
        ops = tuple(KEPT if op is BACK else op for op in plan.ops)
        refresh = StepPlan(ops, plan.unit, plan.merge, plan.rows, plan.drift)
        every = [(BLOCK, 0)] if part.selection else ()
        workspace.forward(tokens[number], [segment], [PlannedPart(refresh, 1, every)])


@settings(max_examples=25)
@given(st.lists(plans(), min_size=2, max_size=5), st.integers(0, 9))
@torch.inference_mode()
def test_a_forward_of_several_plans_gives_each_what_it_gets_alone(
    chosen: list[tuple[StepPlan, tuple[int, int] | None]], seed: int
) -> None:
    parts = parts_of(chosen)
    slots = range(len(parts))
    segments = []
    for slot, part in enumerate(parts):
        block = range(BLOCK * (slot % 2), BLOCK * (slot % 2) + BLOCK)
        # Rows to choose among are listed, as the schedule lists them.
        positions = tuple(block) if part.selection else block
        segments.append(Segment(slot, positions, block.stop, block.start))
    first, second = ([prompt(BLOCK, seed=seed + 100 * turn + slot) for slot in slots] for turn in (0, 1))
    together, apart = (engine().workspace(len(parts), 2 * BLOCK, BLOCK) for _ in range(2))
    for workspace in (together, apart):
        before(workspace, first, segments, parts)
    found = together.forward([token for tokens in second for token in tokens], segments, parts)
    alone = [
        apart.forward(tokens, [segment], [part])
        for tokens, segment, part in zip(second, segments, parts, strict=True)
    ]
    torch.testing.assert_close(
        found.hidden_TD, torch.cat([each.hidden_TD for each in alone]), rtol=1e-4, atol=1e-4
    )
    drifts = [each.drift_BL for each in alone if each.drift_BL is not None]
    assert (found.drift_BL is not None) == bool(drifts)
    if found.drift_BL is not None:
        torch.testing.assert_close(found.drift_BL, torch.cat(drifts), rtol=1e-3, atol=1e-5)
    for mine, theirs in (
        (together.cache.keys_LBKCd, apart.cache.keys_LBKCd),
        (together.cache.values_LBKCd, apart.cache.values_LBKCd),
        *((together.features._buffers[name], buffer) for name, buffer in apart.features._buffers.items()),
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_rows_that_are_no_neighbours_share_a_layer_in_half_precision() -> None:
    """The stream is wider than what a branch adds to it."""
    own = load_recipe(small_recipe(num_hidden_layers=LAYERS), torch.bfloat16).engine
    plans = [
        StepPlan((op,) * LAYERS, unit)
        for op, unit in ((KEPT, Unit.MLP), (BACK, Unit.MLP), (KEPT, Unit.ATTENTION))
    ]
    parts = [PlannedPart(plan, 1) for plan in plans]
    segments = [Segment(slot, range(BLOCK), BLOCK) for slot in range(3)]
    tokens = [prompt(BLOCK, seed=slot) for slot in range(3)]
    workspace = own.workspace(3, BLOCK, BLOCK)
    before(workspace, tokens, segments, parts)
    workspace.forward(tokens[1], [segments[1]], [PlannedPart(StepPlan((KEPT,) * LAYERS, Unit.MLP), 1)])
    found = workspace.forward([token for each in tokens for token in each], segments, parts).hidden_TD
    alone = own.workspace(1, BLOCK, BLOCK).forward(tokens[2], segments[:1]).hidden_TD
    assert (found[2 * BLOCK :] - alone).norm() < 0.02 * alone.norm()


class Counting(Transformer):
    """Counts how often the weights of each branch are read."""

    def __init__(self, other: Transformer) -> None:
        self.__dict__.update(other.__dict__)
        self.calls: Counter[str] = Counter()

    def attention(self, *rest: Any) -> torch.Tensor:
        self.calls["attention"] += 1
        return super().attention(*rest)

    def mlp(self, *rest: Any) -> torch.Tensor:
        self.calls["mlp"] += 1
        return super().mlp(*rest)


@lru_cache
def script() -> dict[int, list[list[tuple[int, int]]]]:
    """What the baseline writes, request by request and step by step."""
    steps: dict[int, list[list[tuple[int, int]]]] = {number: [] for number in range(len(PROMPTS))}
    for event in engine().stream(PROMPTS, DECODE, batch_size=len(PROMPTS)):
        if isinstance(event, StepEvent) and event.positions:
            steps[event.request].append(list(zip(event.positions, event.tokens, strict=True)))
    return steps


def passes(policy: Any) -> int:
    """Branches that were run to decode all prompts at once, the tokens given."""
    counting = Counting(engine().transformer)
    own = type(engine())(counting, engine().mask_token, make_policy=engine()._make_policy)
    own.generate(PROMPTS, DECODE, policy, batch_size=len(PROMPTS), rule=ForcedTokens(script()))
    return counting.calls.total()


@pytest.mark.parametrize("spec", [spec for kind in EXAMPLES.values() for spec in kind.acting], ids=str)
def test_no_policy_reads_the_weights_more_often_than_the_baseline(spec: dict[str, Any]) -> None:
    # What drifts keeps no common time: requests that waited for each other may part again.
    room = 1.02 if "adaptive" in str(spec) else 1
    assert passes(spec) <= room * passes(None)


@pytest.mark.parametrize("unit", ["output", "residual"])
def test_requests_that_replay_fall_into_step_and_spare_weights(unit: str) -> None:
    assert passes(reuse(unit=unit, size=4, k=3, on=BOTH)) < 0.9 * passes(None)


@pytest.mark.parametrize(
    "spec", [reuse(unit="output", on=BOTH), reuse(k=3), trim(), adaptive(max_drift=10)], ids=str
)
def test_a_policy_is_asked_once_a_step_although_requests_wait(spec: dict[str, Any]) -> None:
    recorder = Recorder(spec)
    events = list(engine().stream(PROMPTS, DECODE, recorder, batch_size=len(PROMPTS)))
    asked = [event.plan for event in events if isinstance(event, StepEvent) and event.kind in DENOISING]
    assert len(recorder.plans) == len(asked)


def piece(index: int, op: Op, unit: Unit = Unit.RESIDUAL, layers: int = 3) -> Piece:
    """A step of a whole block that treats the first of six layers alike."""
    state = SequenceState(
        index, [1], BLOCK, BlockSettings(BLOCK, BLOCK, "dual", 9, frozenset()), layers=LAYERS
    )
    whole = next_piece(state, Full(), LAYERS)
    ops = (op,) * layers + (RUNNING,) * (LAYERS - layers)
    plan = FULL if op is RUNNING else StepPlan(ops, unit)
    return Piece(state, Kind.BLOCK, plan, whole.positions, BLOCK, whole.reads)


def turns(*pieces: Piece) -> list[int]:
    now, later = whose_turn(pieces, LAYERS)
    assert len(now) + len(later) == len(pieces)
    return [each.sequence.index for each in now]


def test_who_replays_goes_ahead_where_the_weights_are_fewer_than_the_rows() -> None:
    full, kept = piece(0, RUNNING), piece(1, KEPT)
    half = [piece(number, BACK) for number in (2, 3)]
    assert turns(full, kept) == [0, 1]
    assert turns(full, *half) == [2, 3], "two thirds of the rows, half of the branches"
    assert turns(full, kept, *half) == [2, 3], "half of both"
    assert turns(full, kept, half[0]) == [0, 1, 2], "a third of the rows, half of the branches"
    small = [piece(number, BACK, layers=2) for number in (4, 5)]
    assert turns(full, *small) == [4, 5]
    assert turns(full, kept, *small) == [0, 1, 4, 5], "half of the rows, two thirds of the branches"


def test_who_replays_everything_always_goes_ahead() -> None:
    everything = StepPlan((BACK,) * LAYERS, Unit.OUTPUT)
    outer = piece(3, BACK)
    asleep = Piece(outer.sequence, outer.kind, everything, outer.positions, BLOCK, outer.reads)
    assert turns(piece(0, RUNNING), piece(1, KEPT), piece(2, BACK), asleep) == [3]
