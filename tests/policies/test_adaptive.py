"""Adaptive skipping: what it may reuse, and that the drift it goes by is the drift there is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policy_cases import BLOCK, DECODE, LAYERS, PROMPTS, Recorder, adaptive, model, one, reuse
from reuse_oracle import Decision, ReuseBruteForce, State
from traces import settings_of
from unmask.engine.probe import probe
from unmask.engine.step_plan import Kind, Op
from unmask.errors import UnmaskError
from unmask.policies.layer_reuse import chosen_layers
from unmask.policies.registry import policy_spec
from unmask.spec import DecodeSpec


def recorded(**fields: Any) -> Recorder:
    recorder = Recorder(adaptive(**fields))
    for prompt in PROMPTS:
        one(prompt, recorder)
    return recorder


def reused(recorder: Recorder) -> list[set[int]]:
    return [{layer for layer, op in enumerate(plan.ops) if op is Op.REPLAY} for plan in recorder.plans]


def young(age: int | None, cap: int) -> bool:
    return age is not None and age < cap


def test_nothing_is_reused_before_a_drift_exists() -> None:
    recorder = recorded(max_drift=1e6, budget=1, cap=100)
    for view, layers in zip(recorder.views, reused(recorder), strict=True):
        assert (len(view.drift) == LAYERS) == (view.step >= 2)
        assert bool(layers) == (view.step >= 2)


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_cap(cap: int) -> None:
    recorder = recorded(max_drift=1e6, budget=1, cap=cap)
    row = dict.fromkeys(range(LAYERS), 0)
    longest = 0
    for view, layers in zip(recorder.views, reused(recorder), strict=True):
        for layer in row:
            row[layer] = row[layer] + 1 if layer in layers and view.step else 0
            longest = max(longest, row[layer])
        assert all((view.ages[layer] or 0) < cap for layer in layers)
    assert longest == cap


@pytest.mark.parametrize(("budget", "most"), [(0.2, 1), (0.5, 3), (0.99, 5), (1, 6)])
def test_budget_takes_the_calmest_layers(budget: float, most: int) -> None:
    recorder = recorded(max_drift=0.6, budget=budget, cap=2)
    for view, layers in zip(recorder.views, reused(recorder), strict=True):
        allowed = [
            layer for layer, drift in enumerate(view.drift) if drift <= 0.6 and young(view.ages[layer], 2)
        ]
        assert len(layers) == min(most, len(allowed))
        rest = [view.drift[layer] for layer in allowed if layer not in layers]
        assert all(view.drift[layer] <= drift for layer in layers for drift in rest)
    assert max(map(len, reused(recorder))) == most


@pytest.mark.parametrize("on", [["sub"], ["block"]], ids="+".join)
def test_on(on: list[str]) -> None:
    recorder = recorded(max_drift=1e6, on=on)
    kinds = {view.kind for view, layers in zip(recorder.views, reused(recorder), strict=True) if layers}
    assert kinds == {Kind(on[0])}


def test_max_drift_0_reuses_nothing_where_every_step_changes_an_input() -> None:
    for prompt in PROMPTS[:3]:
        found, baseline = one(prompt, adaptive(max_drift=0, budget=1)), one(prompt)
        assert found.generation.ids == baseline.generation.ids
        assert found.generation.ledger == baseline.generation.ledger


@pytest.mark.parametrize("unit", ["residual", "attention", "mlp"])
def test_the_drift_told_is_the_movement_of_every_layers_input_since_it_computed(unit: str) -> None:
    recorder = Recorder(adaptive(unit=unit, max_drift=0.5, cap=2))
    found = one(PROMPTS[4], recorder)
    plans = iter(recorder.plans)

    def as_recorded(state: State) -> Decision:
        return Decision(frozenset(layer for layer, op in enumerate(next(plans).ops) if op is Op.REPLAY))

    oracle = ReuseBruteForce(
        model().oracle, PROMPTS[4], settings_of(DecodeSpec(**DECODE), BLOCK), unit, as_recorded
    )
    oracle.run()
    assert oracle.answer == found.generation.ids
    assert any(map(len, reused(recorder)))
    compared = 0
    for view, moved in zip(recorder.views[1:], oracle.moved, strict=False):
        if view.step >= 2:
            assert view.drift == pytest.approx(moved, rel=1e-3, abs=1e-5)
            compared += 1
    assert compared > 5


def planted(path: Path, means: list[float], unit: str = "residual") -> Path:
    """A trace whose mean errors are known, with noise that is not in the mean and positions that were not fed."""
    errors = np.empty((4, len(means), BLOCK), dtype=np.float32)
    for layer, mean in enumerate(means):
        noise = np.linspace(-0.01, 0.01, 4 * BLOCK).reshape(4, BLOCK)
        errors[:, layer] = mean + noise
    errors[0] = np.nan
    errors[1] += np.linspace(-0.001, 0.001, BLOCK)
    errors[2, :, 3] = np.nan
    np.savez(path, **{f"error_{unit}": errors, "drift_input": 1 - errors})
    return path


def auto(trace: Path, share: float = 0.5, unit: str = "residual") -> dict[str, Any]:
    return reuse(layers="auto", calibration=str(trace), share=share, unit=unit, on=["sub", "block"])


@pytest.mark.parametrize(
    ("share", "expected"), [(0.01, (4,)), (0.34, (1, 4)), (0.5, (1, 4, 5)), (0.99, (0, 1, 2, 3, 4, 5))]
)
def test_auto_takes_the_layers_with_the_smallest_mean_error(
    tmp_path: Path, share: float, expected: tuple[int, ...]
) -> None:
    trace = planted(tmp_path / "trace.npz", [0.5, 0.2, 0.9, 0.6, 0.1, 0.3])
    assert chosen_layers(policy_spec(auto(trace, share)), LAYERS) == expected
    found, same = (
        one(PROMPTS[1], auto(trace, share)),
        one(PROMPTS[1], reuse(layers=list(expected), on=["sub", "block"])),
    )
    assert found.generation.ids == same.generation.ids
    assert found.generation.ledger == same.generation.ledger


def test_auto_reads_what_the_probe_writes(tmp_path: Path) -> None:
    trace = probe(model().engine, PROMPTS[:2], DecodeSpec(**DECODE))
    trace.save(tmp_path / "trace.npz")
    for unit in ("output", "residual", "attention", "mlp"):
        means = np.nanmean(trace.arrays()[f"error_{unit}"], axis=(0, 2))
        expected = tuple(sorted(np.argsort(means)[:2].tolist()))
        assert chosen_layers(policy_spec(auto(tmp_path / "trace.npz", 0.3, unit)), LAYERS) == expected


def save_one(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def save(**arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda _: None, "no such trace"),
        (lambda path: path.write_bytes(b""), "no trace of"),
        (lambda path: path.write_bytes(b"PK\x03\x04 broken"), "no trace of"),
        (lambda path: path.write_text("a,b"), "no trace of"),
        (save_one, "no trace of"),
        (save(error_mlp=np.zeros((2, LAYERS, 3))), "no trace of"),
        (save(error_residual=np.zeros(3)), "no trace of"),
        (save(error_residual=np.array(["a"])), "no trace of"),
        (save(error_residual=np.zeros((2, 28, 3))), "recorded with 28 layers but this model has 6"),
        (save(error_residual=np.full((2, LAYERS, 3), np.nan)), "compares no two steps"),
    ],
)
def test_bad_traces_are_one_sentence(tmp_path: Path, write: Callable[[Path], object], sentence: str) -> None:
    trace = tmp_path / "trace.npz"
    write(trace)
    with pytest.raises(UnmaskError, match=sentence) as caught:
        one(PROMPTS[0], auto(trace))
    assert str(trace) in str(caught.value)
