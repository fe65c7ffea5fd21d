"""Which rows TRIM feeds: those that need it always, of the others those that moved most."""

from typing import Any

import pytest
import torch

from policy_cases import BLOCK, LAYERS, PROMPTS, Recorder, engine, one, run, trim
from unmask.engine.engine import Engine
from unmask.engine.forward import Workspace
from unmask.engine.policy import StepView
from unmask.engine.step_plan import FULL, Kind, RowSelection, StepPlan
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy


def steps(policy: Any, **decode: Any) -> list[tuple[StepView, RowSelection | None]]:
    recorder = Recorder(policy)
    for prompt in PROMPTS:
        one(prompt, recorder, **decode)
    return [(view, plan.rows) for view, plan in zip(recorder.views, recorder.plans, strict=True)]


def trimmed(policy: Any, **decode: Any) -> list[tuple[StepView, RowSelection]]:
    """Full-block steps that left rows out."""
    found = [
        (view, rows)
        for view, rows in steps(policy, **decode)
        if rows is not None and view.kind is Kind.BLOCK and len(rows.always) + rows.count < BLOCK
    ]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("cache", ["dual", "none"])
@pytest.mark.parametrize("keep", [0, 0.3, 0.8])
def test_what_always_runs(keep: float, cache: str) -> None:
    for view, rows in trimmed(trim(keep=keep), cache=cache):
        always = set(rows.always)
        masked = [position for position in view.masked if position in view.sub_block]
        assert always >= set(view.sub_block)
        assert always >= set(view.changed)
        assert always >= {position - 1 for position in masked}
        assert always == {*view.sub_block, *view.changed, *(position - 1 for position in masked)}
        others = sorted(set(range(BLOCK)) - always)
        assert rows.count == round(keep * len(others))
        assert list(rows.among) == (others if rows.count else [])


@pytest.mark.parametrize("cache", ["dual", "none"])
def test_a_decided_row_before_an_undecided_one_is_never_left_out(cache: str) -> None:
    for view, rows in trimmed(trim(), cache=cache):
        for position in set(range(BLOCK)) - set(rows.always):
            decided = position not in view.masked
            assert not (decided and position + 1 in view.masked)


def test_keep_1_plans_full() -> None:
    policy = make_policy(trim(keep=1), LAYERS)
    recorder = Recorder(policy)
    one(PROMPTS[1], recorder)
    assert recorder.plans
    assert all(plan is FULL for plan in recorder.plans)


def test_every() -> None:
    every = 3
    for view, rows in steps(trim(every=every)):
        if view.kind is Kind.BLOCK and view.block_steps % every == 0:
            assert rows is None
    assert any(rows is not None for _, rows in steps(trim(every=every)))


def test_a_probe_layer_the_model_does_not_have() -> None:
    with pytest.raises(UnmaskError, match="layers 0 to 5"):
        one(PROMPTS[0], trim(keep=0.5, probe_layer=LAYERS))
    assert one(PROMPTS[0], trim(keep=0, probe_layer=LAYERS)).generation.ids


class Watching(Workspace):
    """Checks every choice of rows against a record of its own."""

    choices = 0

    def _select_rows(self, stream: Any, layer: int, chosen: Any, parts: Any) -> Any:
        inputs, before = stream.take(chosen).double().clone(), _listed(stream.places(chosen))
        segments = stream.members(chosen)
        selection = [each for part in chosen for each in parts[part].selection]
        result = super()._select_rows(stream, layer, chosen, parts)
        after = _listed(result.places(chosen))
        assert layer == 2
        start = 0
        expected: list[int] = []
        for segment, (always, count) in zip(segments, selection, strict=True):
            places = before[start : start + len(segment.positions)]
            moved = {
                place: self._moved(place, inputs[start + always + index])
                for index, place in enumerate(places[always:])
            }
            joining = sorted(moved, key=lambda place: -moved[place])[:count]
            expected += [*places[:always], *sorted(joining)]
            start += len(segment.positions)
            Watching.choices += bool(0 < count < len(moved))
        assert after == expected
        for place in after:
            self.record[place] = inputs[before.index(place)]
        return result

    def _moved(self, place: int, now: torch.Tensor) -> float:
        then = self.record[place]
        return float((now - then).norm() / then.norm())


def _listed(places: Any) -> list[int]:
    return list(range(places.start, places.stop)) if isinstance(places, slice) else places.tolist()


class WatchingEngine(Engine):
    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        workspace = Watching(self.transformer, slots, length, block_size)
        workspace.record = {}
        return workspace


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_rows_that_join_are_those_whose_input_to_the_probed_layer_moved_most(batch_size: int) -> None:
    watching = WatchingEngine(engine().transformer, engine().mask_token, make_policy=make_policy)
    Watching.choices = 0
    run(PROMPTS, trim(keep=0.3), batch_size, on=watching)
    assert Watching.choices > 20


def test_a_changed_row_that_competed_counts_as_changed_still() -> None:
    """Whether it ran is known to the device alone, so its keys may be older than its token."""
    competed: list[tuple[set[int], set[int]]] = []

    class Competing:
        pending: set[int] | None = None

        def plan(self, view: StepView) -> StepPlan:
            if self.pending is not None and view.step:
                competed.append((self.pending, set(view.changed)))
            self.pending = None
            every = range(view.block_size)
            if view.block_steps == 0:
                return StepPlan(rows=RowSelection(tuple(every), probe_layer=2))
            masked = {position - 1 for position in view.masked if position in view.sub_block}
            always = {*view.sub_block, *masked}
            among = tuple(position for position in every if position not in always)
            self.pending = set(view.changed) - always or None
            return StepPlan(rows=RowSelection(tuple(sorted(always)), among, 1, probe_layer=2))

    for prompt in PROMPTS:
        one(prompt, Competing(), cache="none")
    assert len(competed) > 5
    assert all(before <= after for before, after in competed)
