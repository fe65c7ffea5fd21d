"""Every unit of replay, and TRIM, against an oracle that keeps each remembered thing in plain arrays."""

from typing import Any

import pytest

from brute_force import Step
from policy_cases import BLOCK, BOTH, DECODE, LAYERS, Recorder, combine, model, one, prompt, reuse, trim
from reuse_oracle import Decide, Decision, ReuseBruteForce, State, Tally, compare
from traces import settings_of
from unmask.spec import DecodeSpec

LENGTHS = (5, 21)


def scheduled(layers: set[int], k: int, on: list[str], warmup: int = 1) -> Decide:
    def decide(state: State) -> Decision:
        acts = state.kind in on and state.step >= warmup and state.step % k != 0
        return Decision(frozenset(layers) if acts else frozenset())

    return decide


def trimmed(every: int | None = None) -> Decide:
    def decide(state: State) -> Decision:
        first = state.block_steps == 0 or (every is not None and state.block_steps % every == 0)
        if state.kind == "sub" or first:
            return Decision()
        needed = {*state.sub_block, *state.stale, *(column - 1 for column in state.masked)}
        return Decision(rows=sorted(needed))

    return decide


def both(rows: Decide, layers: Decide) -> Decide:
    return lambda state: Decision(layers(state).replayed, rows(state).rows)


def check(
    policy: dict[str, Any], unit: str, decide: Decide, seeds: tuple[int, ...] = (0, 1), **decode: Any
) -> None:
    tally = Tally()
    settings = settings_of(DecodeSpec(**(DECODE | decode)), BLOCK)
    for seed, length in zip(seeds * 2, LENGTHS, strict=False):
        text = prompt(length, seed)
        expected = ReuseBruteForce(model().oracle, text, settings, unit, decide)
        steps = expected.run()
        found = one(text, policy, **decode)
        traced = [
            Step(event.kind.value, dict(zip(event.positions, event.tokens, strict=True)))
            for event in found.events
        ]
        if compare(steps, traced, tally):
            assert found.generation.ids == expected.answer
    assert tally.whole >= 1, tally.parted
    assert tally.steps > 25


@pytest.mark.parametrize("on", [["sub"], ["block"], BOTH], ids="+".join)
@pytest.mark.parametrize("unit", ["output", "residual", "attention", "mlp"])
def test_replay_of_each_unit(unit: str, on: list[str]) -> None:
    check(reuse(unit=unit, k=2, layers=[1, 2, 4], on=on), unit, scheduled({1, 2, 4}, 2, on))


@pytest.mark.parametrize("unit", ["residual", "attention", "mlp"])
@pytest.mark.parametrize("layers", ["first", "middle", "last"])
def test_named_subsets(unit: str, layers: str) -> None:
    chosen = {"first": {1, 2}, "middle": {2, 3}, "last": {4, 5}}[layers]
    check(reuse(unit=unit, k=3, layers=layers, on=BOTH), unit, scheduled(chosen, 3, BOTH))


@pytest.mark.parametrize("warmup", [1, 2, 5])
def test_warmup(warmup: int) -> None:
    check(
        reuse(unit="residual", k=3, layers="first", size=3, on=BOTH, warmup=warmup),
        "residual",
        scheduled({1, 2, 3}, 3, BOTH, warmup),
    )


@pytest.mark.parametrize("cache", ["dual", "none"])
def test_every_layer_at_once_and_without_block_cache(cache: str) -> None:
    check(
        reuse(unit="residual", k=2, layers=["0-5"], on=BOTH),
        "residual",
        scheduled(set(range(LAYERS)), 2, BOTH),
        cache=cache,
    )


@pytest.mark.parametrize("cache", ["dual", "none"])
@pytest.mark.parametrize("every", [None, 2, 3])
def test_trim(every: int | None, cache: str) -> None:
    check(trim(every=every), "", trimmed(every), cache=cache)


def test_a_policy_is_told_the_state_that_the_oracle_has() -> None:
    recorder = Recorder(combine(trim(), reuse(unit="attention", k=3, layers="middle", on=BOTH)))
    text = prompt(21)
    settings = settings_of(DecodeSpec(**DECODE), BLOCK)
    decide = both(trimmed(), scheduled({2, 3}, 3, BOTH))
    oracle = ReuseBruteForce(model().oracle, text, settings, "attention", decide)
    oracle.run()
    found = one(text, recorder)
    assert found.generation.ids == oracle.answer
    for view, state in zip(recorder.views, oracle.states, strict=True):
        start = state.block.start
        assert (view.kind.value, view.step, view.block_steps) == (state.kind, state.step, state.block_steps)
        assert [start + position for position in view.sub_block] == list(state.sub_block)
        in_sub_block = [start + position for position in view.masked if position in view.sub_block]
        assert in_sub_block == state.masked
        if state.step:
            assert {start + position for position in view.changed} == state.stale


@pytest.mark.parametrize("unit", ["output", "residual", "attention", "mlp"])
def test_trim_with_layer_reuse(unit: str) -> None:
    """Rows whose keys a replay left unwritten stay among those that trim must feed."""
    layers = reuse(unit=unit, k=2, layers="middle", on=BOTH)
    rows = trimmed()
    schedule = scheduled({2, 3}, 2, BOTH)

    def decide(state: State) -> Decision:
        replayed = schedule(state).replayed
        if unit == "output" and replayed:
            return Decision(replayed)
        return Decision(replayed, rows(state).rows)

    check(combine(trim(), layers), unit, decide)


@pytest.mark.parametrize("k", [2, 3])
def test_output_replay_is_the_wrapped_layers_of_the_seed_whatever_the_subset(k: int) -> None:
    """Remembered layer outputs in a contiguous range, with all other layers run, give the old logits."""
    for layers, chosen in (("first", {1, 2}), ("middle", {2, 3}), ("last", {4, 5})):
        check(reuse(unit="output", k=k, layers=layers), "wrapped", scheduled(chosen, k, ["sub"]))
