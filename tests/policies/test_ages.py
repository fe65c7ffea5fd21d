"""Ages that a policy is told, against stamps taken when features are really remembered and put back."""

import random
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_cases import BLOCK, EXAMPLES, LAYERS, PROMPTS, SUB_BLOCK, adaptive, combine, engine, one, trim
from unmask.engine.feature_store import FeatureStore, Places
from unmask.engine.policy import Policy, StepView
from unmask.engine.step_plan import FULL, Kind, Op, RowSelection, StepPlan, Unit, features
from unmask.policies.registry import make_policy

ACTING = [spec for examples in EXAMPLES.values() for spec in examples.acting]
DECODES = st.fixed_dictionaries(
    {
        "cache": st.sampled_from(("dual", "none")),
        "sub_block_size": st.sampled_from([SUB_BLOCK, 8, BLOCK]),
        "threshold": st.sampled_from([0.3, 0.6, 1.0]),
    }
)


def fed(view: StepView) -> range:
    return view.sub_block if view.kind is Kind.SUB else range(view.block_size)


class Stamps:
    """Watches the feature store: when each row of each feature was written, and how old those put back are."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.view: StepView | None = None
        self.written: dict[tuple[Hashable, int], tuple[int, int]] = {}
        self.replayed: list[tuple[StepView, int, int]] = []
        """For each step and layer, the age of the oldest row that was put back."""

    def plan(self, view: StepView) -> StepPlan:
        self.view = view
        self.check(view)
        return self.policy.plan(view)

    def check(self, view: StepView) -> None:
        """Overridden where the view's ages are compared."""

    def ages(self, view: StepView, offsets: Any) -> tuple[int | None, ...]:
        """For each layer, the oldest feature that could be put back for these offsets."""
        oldest: list[int | None] = [None] * view.layers
        for name in {name for name, _ in self.written}:
            if not isinstance(name, tuple) or not isinstance(name[0], Unit):
                continue
            stamps = [self.written.get((name, offset), (-1, 0)) for offset in offsets]
            if any(block != view.block for block, _ in stamps):
                continue
            age = max(view.step - 1 - step for _, step in stamps)
            for layer in range(name[1], name[2]):
                oldest[layer] = max(age, oldest[layer] or 0)
        return tuple(oldest)

    @contextmanager
    def watching(self) -> Iterator[None]:
        remember, recall = FeatureStore.remember, FeatureStore.recall

        def offsets(places: Places) -> list[int]:
            rows = range(places.start, places.stop) if isinstance(places, slice) else places.tolist()
            return [row % BLOCK for row in rows]

        def remembered(store: FeatureStore, name: Hashable, places: Places, rows_TD: Any) -> None:
            assert self.view is not None
            for offset in offsets(places):
                self.written[name, offset] = (self.view.block, self.view.step)
            remember(store, name, places, rows_TD)

        def recalled(store: FeatureStore, name: Hashable, places: Places) -> Any:
            if isinstance(name, tuple) and isinstance(name[0], Unit):
                assert self.view is not None
                stamps = [self.written[name, offset] for offset in offsets(places)]
                assert {block for block, _ in stamps} == {self.view.block}
                age = max(self.view.step - 1 - step for _, step in stamps)
                self.replayed += [(self.view, layer, age) for layer in range(name[1], name[2])]
            return recall(store, name, places)

        with (
            patch.object(FeatureStore, "remember", remembered),
            patch.object(FeatureStore, "recall", recalled),
        ):
            yield


class Compared(Stamps):
    """Compares all ages that are told with the stamps."""

    def check(self, view: StepView) -> None:
        assert view.ages == self.ages(view, fed(view))


class Drawn:
    """Plans drawn anew at every step among those that are allowed: any unit, merged or not, all rows or some."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.stamps: Stamps

    def plan(self, view: StepView) -> StepPlan:
        draw, offsets = self.draw, fed(view)
        rows = None
        if view.step and draw.random() < 0.4:
            needed = {*view.sub_block, *(offset - 1 for offset in view.masked if offset in view.sub_block)}
            needed &= {*offsets}
            offsets = sorted(needed | {offset for offset in offsets if draw.random() < 0.3})
            rows = RowSelection(tuple(offsets))
        unit, merge = draw.choice(list(Unit)), draw.random() < 0.5
        ops = tuple(draw.choice([Op.COMPUTE, Op.REFRESH]) for _ in range(LAYERS))
        known = {
            name
            for name, _ in self.stamps.written
            if isinstance(name, tuple)
            and all(self.stamps.written.get((name, o), (-1, 0))[0] == view.block for o in offsets)
        }
        chosen = [name for name in known if name[0] is unit and draw.random() < 0.7]
        replays = list(ops)
        for _, start, stop in chosen:
            replays[start:stop] = [Op.REPLAY] * (stop - start)
        plan = StepPlan(tuple(replays), unit, merge, rows)
        if plan.replays_everything:
            plan = StepPlan(plan.ops, unit, merge)
            offsets = fed(view)
        possible = all(
            self.stamps.written.get((name, offset), (-1, 0))[0] == view.block
            for name in features(plan, Op.REPLAY)
            for offset in offsets
        )
        if possible:
            return plan
        return StepPlan(ops, unit, merge, rows) if draw.random() < 0.7 else FULL


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), prompt=st.sampled_from(PROMPTS), decode=DECODES)
def test_ages_are_those_of_the_features_there_are(
    seed: int, prompt: list[int], decode: dict[str, Any]
) -> None:
    policy = Drawn(random.Random(seed))
    stamps = policy.stamps = Compared(policy)
    with stamps.watching():
        one(prompt, stamps, **decode)
    assert stamps.written


@settings(max_examples=40, deadline=None)
@given(spec=st.sampled_from(ACTING), prompt=st.sampled_from(PROMPTS), decode=DECODES)
def test_no_policy_puts_back_what_is_older_than_it_was_told(
    spec: dict[str, Any], prompt: list[int], decode: dict[str, Any]
) -> None:
    """Rows that a probe lets through are refreshed unseen, so what is told may only be too old."""
    stamps = Stamps(make_policy(spec, LAYERS))
    with stamps.watching():
        one(prompt, stamps, **decode)
    for view, layer, age in stamps.replayed:
        told = view.ages[layer]
        assert told is None or age <= told


@settings(max_examples=40, deadline=None)
@given(
    cap=st.integers(1, 4),
    unit=st.sampled_from(["residual", "attention", "mlp"]),
    trimmed=st.booleans(),
    prompt=st.sampled_from(PROMPTS),
    decode=DECODES,
)
def test_cap_bounds_what_is_put_back(
    cap: int, unit: str, trimmed: bool, prompt: list[int], decode: dict[str, Any]
) -> None:
    layers = adaptive(unit=unit, max_drift=1e6, budget=1, cap=cap)
    stamps = Stamps(make_policy(combine(trim(), layers) if trimmed else layers, LAYERS))
    with stamps.watching():
        one(prompt, stamps, **decode)
    assert all(age < cap for _, _, age in stamps.replayed)


@pytest.mark.parametrize("trimmed", [False, True], ids=["whole", "trimmed"])
def test_adaptive_still_reuses_where_every_step_feeds_the_block(trimmed: bool) -> None:
    """Rows that trim leaves out age, but they are not put back, so they hinder nothing."""
    layers = adaptive(max_drift=1e6, budget=1, cap=1)
    found = one(PROMPTS[1], combine(trim(), layers) if trimmed else layers, cache="none", threshold=1.0)
    denoising = found.denoising()
    replaying = [event for _, event in denoising if Op.REPLAY in event.plan.ops]
    assert len(replaying) > len(denoising) / 4


def test_full_refreshes_nothing() -> None:
    told = []

    class Late:
        def plan(self, view: StepView) -> StepPlan:
            told.append(view.ages)
            return FULL if view.step < 3 else StepPlan((Op.REFRESH,) * view.layers, Unit.MLP)

    engine().generate(PROMPTS[0], {"block_size": BLOCK, "max_new_tokens": 10, "threshold": 1.0}, Late())
    assert told[:4] == [(None,) * LAYERS] * 4
    assert told[4] == (0,) * LAYERS


def test_rows_that_a_probe_may_have_left_out_are_as_old_as_before() -> None:
    """Which of them ran is known on the device only, so none of them counts as refreshed."""
    told = []

    class Probing:
        def plan(self, view: StepView) -> StepPlan:
            told.append(view.ages)
            needed = sorted({*view.sub_block, *view.changed, *view.read}) if view.step else list(view.fed)
            others = tuple(offset for offset in view.fed if offset not in needed)
            ops = (Op.COMPUTE,) + (Op.REFRESH,) * (view.layers - 1)
            return StepPlan(ops, Unit.MLP, rows=RowSelection(tuple(needed), others, len(others) // 2, 1))

    settings = {"block_size": BLOCK, "max_new_tokens": 8, "threshold": 1.0, "cache": "none"}
    engine().generate(PROMPTS[0], settings, Probing())
    assert told[:4] == [(None,) * LAYERS, *((None, *(age,) * (LAYERS - 1)) for age in (0, 1, 2))]
