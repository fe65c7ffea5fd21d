"""The cost model: work costs more when there is more of it, and a file that is no model is told in one sentence."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from unmask.cost import Demand, Ledger, MachineModel, ModelShape, Work, demand_of, machine_model
from unmask.cost.demand import QUANTITIES, demand_of_effect, demand_of_ledger
from unmask.cost.effect import Effect
from unmask.cost.model import SHIPPED, Rates, as_text, read_machine_model, user_file
from unmask.engine.policy import Full
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.hub import find_checkpoint
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.rehearsal import Script, rehearse

SHAPE = ModelShape(layers=12, hidden=128, ffn=320, heads=4, kv_heads=2, head_dim=32, vocabulary=512)
MODEL = MachineModel(
    machine="a processor",
    threads=1,
    device="cpu",
    dtype="float32",
    date="2026-11-18",
    commit="c0ffee",
    rates=Rates(**dict.fromkeys(QUANTITIES, 1e-9)),
    start_up_seconds=2.0,
    opening_seconds=0.5,
    load_seconds=3.0,
    median_error=0.05,
    worst_error=0.2,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    user_file().parent.mkdir()
    return user_file()


@pytest.mark.parametrize("model", [MODEL, read_machine_model(SHIPPED)], ids=["invented", "shipped"])
def test_a_forward_takes_longer_with_rows_context_layers_and_requests(model: MachineModel) -> None:
    def seconds(shape: ModelShape, rows: int, visible: int, requests: int = 1) -> float:
        work = Work("block", rows, rows * visible, 8)
        return model.seconds(demand_of(work, shape, requests).times(requests))

    usual = seconds(SHAPE, 32, 256)
    assert seconds(SHAPE, 128, 256) > usual
    assert seconds(SHAPE, 32, 2048) > usual
    assert seconds(replace(SHAPE, layers=24), 32, 256) > usual
    assert usual < seconds(SHAPE, 32, 256, requests=4) < 4 * usual


def test_requests_share_what_a_forward_needs_once() -> None:
    work = Work("block", 32, 32 * 256, 8)
    alone, shared = demand_of(work, SHAPE), demand_of(work, SHAPE, together=4).times(4)
    assert shared.forwards == alone.forwards == 1
    assert shared.weight_bytes == alone.weight_bytes
    assert shared.layer_flops == 4 * alone.layer_flops
    assert shared.requests == 4


def test_replayed_layers_ask_for_nothing() -> None:
    half = tuple(32 if layer < 6 else 0 for layer in range(12))
    full = demand_of(Work("block", 32, 32 * 256, 0), SHAPE)
    reused = demand_of(Work("block", 32, 32 * 256, 0, half, half), SHAPE)
    for name in ("layer_calls", "weight_bytes", "key_bytes", "layer_flops", "attention_flops"):
        assert getattr(reused, name) == getattr(full, name) / 2, name


@pytest.mark.parametrize("policy", [None, {"kind": "trim", "keep": 0.25}, {"kind": "layer_reuse", "k": 2}])
def test_sums_give_nearly_the_demand_of_the_ledger(policy: dict[str, object] | None) -> None:
    chosen = make_policy(policy_spec(policy), SHAPE.layers) if policy else Full()
    ledger = rehearse(chosen, SHAPE.layers, Script())
    exact, summed = (
        demand_of_ledger(ledger, SHAPE, 4),
        demand_of_effect(Effect.of(ledger, SHAPE), SHAPE, 4),
    )
    for name in QUANTITIES:
        assert getattr(summed, name) == pytest.approx(getattr(exact, name), rel=0.1), name


def test_no_work_has_no_demand() -> None:
    assert demand_of_ledger(Ledger(12), SHAPE, 1) == Demand()
    assert demand_of_effect(Effect(12), SHAPE, 1) == Demand()


def test_weights_of_a_shape_are_those_of_its_matrices() -> None:
    config = open_checkpoint(find_checkpoint("embedded")).config
    # Norms and biases are no matrices.
    assert config.shape.weights == pytest.approx(config.parameters, rel=0.05)


def test_a_run_opens_longer_with_a_larger_checkpoint() -> None:
    assert MODEL.opening(SHAPE, 4) > MODEL.opening(SHAPE, 2) > MODEL.opening_seconds


def test_the_file_of_the_user_comes_first(cache: Path) -> None:
    assert "ships with the package" in machine_model().source
    cache.write_text(as_text(MODEL))
    found = machine_model()
    assert found.model == MODEL
    assert (
        found.source
        == "the cost model measured here (a processor, 1 thread, 2026-11-18, forwards within 5% in the median)"
    )


SPOILED = {
    "empty": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe\x00",
    "a list": b"[1]",
    "another file": b'{"schema": 2, "weights": 1}',
    "no rates": b'{"schema": 1}',
    "not a number": as_text(MODEL).replace("0.5", "NaN").encode(),
    "negative": as_text(MODEL).replace("0.5", "-0.5").encode(),
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", SPOILED.values(), ids=SPOILED)
def test_a_file_that_is_no_model_is_told_and_not_used(cache: Path, content: bytes) -> None:
    cache.write_bytes(content)
    with pytest.raises(UnmaskError, match=r"machine\.json") as raised:
        read_machine_model(cache)
    assert "\n" not in str(raised.value)
    found = machine_model()
    assert found.model == read_machine_model(SHIPPED)
    assert f"since {cache} is not readable" in found.source


def test_a_folder_in_its_place_is_not_used(cache: Path) -> None:
    cache.mkdir()
    assert machine_model().model == read_machine_model(SHIPPED)


def test_a_model_comes_back_from_its_text(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(as_text(MODEL))
    assert read_machine_model(file) == MODEL


def test_rates_are_those_of_the_quantities() -> None:
    assert tuple(field.name for field in msgspec.structs.fields(Rates)) == QUANTITIES
