"""How long a sweep takes, before it runs: by comparable earlier runs on such a machine, else unknown."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recipe_cases import lock_for, recipe
from unmask.analysis.forecast import Forecast, forecast
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store import Store
from unmask.store.result import AnyResult
from unmask.store.store import run_id

TASK = "unmask_arith"
CPU = recipe(("gpus = 1", "gpus = 0"))
GPU = recipe()
LOADING = 3.0
"""Seconds of every earlier run that were no answering."""


@dataclass(frozen=True)
class Sweep:
    """Runs of a recipe and the store that they go to."""

    recipe: Recipe
    store: Store

    def runs(self, task: str = TASK, kind: str = "accuracy", limit: int | None = None) -> list[PlannedRun]:
        runs = sweep_of(self.recipe, lock_for(self.recipe), [task], limit=limit)
        return [run for run in runs if run.kind == kind]

    def run(self, configuration: str, **selection: Any) -> PlannedRun:
        return next(run for run in self.runs(**selection) if run.configuration == configuration)

    def publish(
        self, planned: PlannedRun, answering: float, host: str = "", device: str = "cpu", **changes: Any
    ) -> None:
        """A result that took this long to answer."""
        run = self.store.run(planned.identity)
        result = {
            "schema": 1,
            "id": run.id,
            "identity": planned.identity,
            "kind": "accuracy",
            "task": planned.task,
            "value": 0.5,
            "rows": planned.limit or 600,
            "seconds": LOADING + answering,
            "finished": "2026-11-18T02:00:00+00:00",
            "speed": {"decoding": {"prefill_seconds": answering / 4, "decode_seconds": 3 * answering / 4}},
            "answers": {"resumed": 0},
            "environment": {"host": host or platform.node(), "device": device, "batch_size": 8},
        }
        assert run.publish(msgspec.convert({**result, **changes}, AnyResult))

    def forecast(self, *runs: PlannedRun) -> Forecast | None:
        return forecast(self.recipe, lock_for(self.recipe), runs, self.store)

    def seconds(self, *runs: PlannedRun) -> list[float | None]:
        """The forecast of each run by itself."""
        expected = self.forecast(*runs)
        return [expected.seconds.get(run_id(run.identity)) if expected else None for run in runs]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(CPU, Store(tmp_path))


@pytest.fixture
def on_gpus(tmp_path: Path) -> Sweep:
    return Sweep(GPU, Store(tmp_path))


def test_answering_grows_with_the_rows_and_loading_does_not(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 2.0)
    expected = sweep.forecast(sweep.run("k1_first", limit=400))
    assert expected is not None
    assert expected.total == pytest.approx(LOADING + 2.0 * 400 / 4)
    assert (expected.unknown, expected.basis) == (0, "1 earlier run of the same tasks on this machine")


def test_the_start_of_a_worker_counts(sweep: Sweep) -> None:
    """A result's own seconds begin when Python has imported all; its attempt began before."""
    planned = sweep.run("k1_first")
    folder = sweep.store.run(planned.identity).attempt("0001").folder
    folder.mkdir(parents=True)
    started = {"schema": 1, "run": "x", "started": "2026-11-18T01:59:48+00:00"}
    (folder / "attempt.json").write_text(json.dumps(started))
    sweep.publish(planned, 2.0, attempt="0001")
    start = 12.0 - (LOADING + 2.0)
    assert sweep.seconds(sweep.run("k1_first", limit=400)) == [pytest.approx(start + LOADING + 200.0)]
    (timed,) = sweep.runs(kind="timing", limit=2)
    assert sweep.seconds(timed) == [None]


@pytest.mark.parametrize("started", [None, "yesterday", "2027-01-01T00:00:00+00:00", "2026-11-18T01:00:00"])
def test_a_start_that_is_not_known_counts_nothing(sweep: Sweep, started: str | None) -> None:
    planned = sweep.run("k1_first")
    folder = sweep.store.run(planned.identity).attempt("0001").folder
    folder.mkdir(parents=True)
    (folder / "attempt.json").write_text(json.dumps({"schema": 1, "run": "x", "started": started}))
    sweep.publish(planned, 2.0, attempt="0001")
    assert sweep.seconds(planned) == [pytest.approx(LOADING + 2.0)]


def test_runs_that_are_forecast_by_other_decode_settings_are_counted(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1.0)
    alike, other = sweep.run("k1_last"), sweep.run("loose")
    one = sweep.forecast(alike)
    both = sweep.forecast(alike, other)
    assert one is not None
    assert both is not None
    assert one.basis == "1 earlier run of the same tasks on this machine"
    assert "(1 run by those with other decode settings, which take other steps)" in both.basis


def test_scoring_counts_as_answering(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 2.0, speed={"scoring": {"seconds": 1.0}})
    assert sweep.seconds(sweep.run("k1_first", limit=8)) == [pytest.approx(LOADING + 1.0 + 2.0)]


def test_the_same_configuration_comes_first_then_the_same_decode_settings_then_any(sweep: Sweep) -> None:
    sweep.publish(sweep.run("loose"), 10.0)
    assert sweep.seconds(sweep.run("k2_last")) == [LOADING + 10.0]
    sweep.publish(sweep.run("k1_first"), 1.0)
    sweep.publish(sweep.run("k1_last"), 3.0)
    assert sweep.seconds(sweep.run("k2_last")) == [LOADING + 2.0]
    assert sweep.seconds(sweep.run("k1_last", limit=8)) == [LOADING + 6.0]


def test_timing_runs_go_by_earlier_timing_runs(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1.0)
    (planned,) = sweep.runs(kind="timing", limit=2)
    assert sweep.seconds(planned) == [None]
    (shorter,) = sweep.runs(kind="timing", limit=1)
    sweep.publish(shorter, 7.0, kind="timing", control="k1_first", seconds=7.0)
    assert sweep.seconds(planned) == [pytest.approx(14.0)]


def test_runs_without_an_earlier_one_are_counted_apart(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1.0)
    known, unknown = sweep.run("k1_first"), sweep.run("k1_first", task="unmask_choice_text")
    expected = sweep.forecast(known, unknown)
    assert expected is not None
    assert set(expected.seconds) == {run_id(known.identity)}
    assert expected.unknown == 1


def test_runs_of_other_machines_tell_nothing(sweep: Sweep, on_gpus: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1.0, host="elsewhere")
    assert sweep.forecast(sweep.run("k1_last")) is None
    assert on_gpus.forecast(on_gpus.run("k1_last")) is None
    on_gpus.publish(on_gpus.run("k2_first"), 0.5, host="node17", device="cuda")
    expected = on_gpus.forecast(on_gpus.run("k1_last"))
    assert expected is not None
    assert expected.basis == "1 earlier run of the same tasks on GPUs"


@pytest.mark.parametrize(
    "changes", [{"answers": {"resumed": 2}}, {"seconds": None}], ids=["resumed", "no clock"]
)
def test_results_that_tell_nothing_are_left_out(sweep: Sweep, changes: dict[str, Any]) -> None:
    sweep.publish(sweep.run("k1_first"), 5.0, **changes)
    assert sweep.forecast(sweep.run("k1_last")) is None


def test_a_result_without_clocks_is_scaled_whole(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1.0, speed={})
    assert sweep.seconds(sweep.run("k1_first", limit=8)) == [2 * (LOADING + 1.0)]


def test_runs_of_other_weights_or_examples_tell_nothing(sweep: Sweep) -> None:
    planned = sweep.run("k1_first")
    other = msgspec.json.decode(json.dumps(planned.identity))
    other["task"]["num_fewshot"] = 5
    sweep.publish(PlannedRun("accuracy", "k1_first", TASK, 4, other), 5.0)
    weights = {**planned.identity, "weights": "others"}
    sweep.publish(PlannedRun("accuracy", "k1_first", TASK, 4, weights), 5.0)
    assert sweep.forecast(sweep.run("k1_last")) is None


def test_nothing_to_do_takes_no_forecast(sweep: Sweep) -> None:
    assert sweep.forecast() is None
