"""The cost benchmark: it recovers a machine that is exactly linear, and runs end to end; no figure is asserted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import cost
from unmask.cost import ModelShape
from unmask.cost.demand import QUANTITIES
from unmask.cost.model import Rates, read_machine_model, user_file

RATES = dict(zip(QUANTITIES, (2e-5, 1e-5, 3e-5, 5e-11, 2e-10, 1e-10, 2e-11, 4e-11, 3e-11), strict=True))
SMALL = ModelShape(layers=12, hidden=128, ffn=320, heads=4, kv_heads=2, head_dim=32, vocabulary=512)
SHAPES = {
    "small": SMALL,
    "deep": replace(SMALL, layers=24),
    "wide": ModelShape(layers=24, hidden=896, ffn=4864, heads=14, kv_heads=2, head_dim=64, vocabulary=50000),
}


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def linear_machine() -> list[cost.Measured]:
    """Every point takes exactly what the rates say."""
    return [
        cost.Measured(point, point.demand(shape), cost.predicted(RATES, point.demand(shape)))
        for name, shape in SHAPES.items()
        for point in cost.points_of(name, cost.CONTEXTS, 512)
    ]


def test_an_exactly_linear_machine_is_recovered() -> None:
    fitted = cost.fit(linear_machine())
    assert fitted.rates == pytest.approx(RATES, rel=1e-3)
    assert max(map(abs, fitted.errors)) < 1e-6


def test_rates_are_never_negative() -> None:
    """Also where forwards with more rows take less time."""
    measured = [replace(one, seconds=1e-3 / one.point.rows) for one in linear_machine()]
    assert min(cost.fit(measured).rates.values()) >= 0


def test_points_fit_their_context_and_differ_in_it() -> None:
    points = cost.points_of("small", cost.CONTEXTS, 512)
    assert all(min(point.contexts) >= point.rows for point in points)
    assert len(set(cost.Point("small", 32, 4, 256, 8).contexts)) == 4
    assert {point.reads for point in points} == {0, 1, 8}


def test_the_benchmark_measures_fits_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    few = ["--shapes", "tiny", "--contexts", "64", "--most-rows", "32", "--rounds", "1"]
    cost.main([*few, "--cache", str(tmp_path), "--write"])
    lines = capsys.readouterr().out.splitlines()
    told = json.loads(lines[-1])

    assert told["benchmark"] == "cost"
    assert [(point["rows"], point["requests"]) for point in told["points"]] == [(8, 1), (32, 1), (8, 4)]
    assert any("each predicted by a fit without its fifth" in line for line in lines)
    assert f"Written to {user_file()}." in lines
    model = read_machine_model(user_file())
    assert json.loads(json.dumps(told["model"])) == json.loads(user_file().read_text())
    assert isinstance(model.rates, Rates)
    assert model.start_up_seconds > 0
