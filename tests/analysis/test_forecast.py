"""How long a sweep takes, before it runs: by counted work where there is some, else by a rehearsal."""

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recipe_cases import lock_for, recipe
from unmask.analysis.forecast import Forecast, forecast
from unmask.cost import ModelShape
from unmask.cost.demand import QUANTITIES, demand_of_ledger
from unmask.cost.effect import Effect
from unmask.cost.model import Found, MachineModel, Rates
from unmask.engine.policy import Full
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.recipe import Recipe
from unmask.spec.sweep import PlannedRun, sweep_of
from unmask.store import Store

MACHINE = MachineModel(
    machine="a processor",
    threads=1,
    device="cpu",
    dtype="float32",
    date="2026-11-18",
    commit="c0ffee",
    rates=Rates(**dict.fromkeys(QUANTITIES, 0.0) | {"forwards": 0.01, "layer_flops": 1e-11}),
    start_up_seconds=2.0,
    opening_seconds=0.5,
    load_seconds=0.0,
    median_error=0.0,
    worst_error=0.0,
)
FOUND = Found(MACHINE, "the invented cost model")
TASK = "unmask_arith"
CPU = recipe(("gpus = 1", "gpus = 0"))
GPU = recipe()
SHAPE = ModelShape(**lock_for(CPU).shape)
LEDGER = rehearse(Full(), SHAPE.layers, Script(new_tokens=64))
"""The work of one row of every earlier run."""


@dataclass(frozen=True)
class Sweep:
    """Runs of a recipe and the store that they go to."""

    recipe: Recipe
    store: Store

    def runs(self, task: str = TASK, kind: str = "accuracy", limit: int | None = None) -> list[PlannedRun]:
        found = sweep_of(self.recipe, lock_for(self.recipe), [task], limit=limit)
        return [run for run in found if run.kind == kind]

    def run(self, configuration: str, **selection: Any) -> PlannedRun:
        return next(run for run in self.runs(**selection) if run.configuration == configuration)

    def publish(
        self, planned: PlannedRun, took: float, host: str = "", device: str = "cpu", **changes: Any
    ) -> None:
        """A result whose rows all took the same work."""
        rows = planned.limit or 600
        effect = Effect(SHAPE.layers)
        for _ in range(rows):
            effect.add(Effect.of(LEDGER, SHAPE))
        run = self.store.run(planned.identity)
        result = {
            "schema": 1,
            "id": run.id,
            "identity": planned.identity,
            "kind": "accuracy",
            "task": planned.task,
            "value": 0.5,
            "rows": rows,
            "seconds": took,
            "finished": "2026-11-18T02:00:00+00:00",
            "effect": {"generation": effect.as_dict()},
            "answers": {"resumed": 0},
            "environment": {"host": host or platform.node(), "device": device, "batch_size": 8},
        }
        assert run.publish({**result, **changes})

    def forecast(self, *runs: PlannedRun) -> Forecast | None:
        return forecast(self.recipe, lock_for(self.recipe), runs, self.store, FOUND)


def priced(rows: int, batch: int) -> float:
    """What the invented machine takes for rows like the earlier ones."""
    return MACHINE.seconds(demand_of_ledger(LEDGER, SHAPE, min(rows, batch))) * rows


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(CPU, Store(tmp_path))


@pytest.fixture
def on_gpus(tmp_path: Path) -> Sweep:
    return Sweep(GPU, Store(tmp_path))


def test_counted_work_of_runs_elsewhere_is_priced_as_it_is(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 1000.0, host="elsewhere")
    found = sweep.forecast(sweep.run("k1_first", limit=40))
    assert found is not None
    assert found.seconds == pytest.approx((0.5 + priced(40, 8),))
    assert found.total == pytest.approx(found.seconds[0] + 2.0)
    assert found.basis == "1 earlier run of the same tasks and the invented cost model"


def test_runs_on_this_machine_set_the_scale(sweep: Sweep) -> None:
    for name, times in (("k1_first", 2), ("k1_last", 3), ("k2_first", 30)):
        sweep.publish(sweep.run(name), 0.5 + times * priced(4, 8))
    found = sweep.forecast(sweep.run("k1_first", limit=40))
    assert found is not None
    assert found.seconds == pytest.approx((0.5 + 3 * priced(40, 8),))
    assert found.basis.startswith("1 earlier run")


def test_short_runs_do_not_stretch_long_ones(sweep: Sweep) -> None:
    """Start-up counts once, not for every row."""
    sweep.publish(sweep.run("k1_first"), 0.5 + priced(4, 8))
    found = sweep.forecast(sweep.run("k1_first", limit=400))
    assert found is not None
    assert found.seconds[0] < 100 * (0.5 + priced(4, 8)) / 2


def test_a_configuration_without_a_run_goes_by_its_neighbours(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 0.5 + priced(4, 8))
    sweep.publish(sweep.run("k1_last"), 0.5 + priced(4, 8))
    found = sweep.forecast(sweep.run("k2_last"), sweep.run("loose"))
    assert found is not None
    assert found.seconds == pytest.approx([0.5 + priced(4, 8)] * 2)
    assert found.basis.startswith("2 earlier runs")


def test_timing_runs_repeat_prompts_for_every_configuration(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 0.5 + priced(4, 8))
    (timing,) = sweep.runs(kind="timing")
    found = sweep.forecast(timing)
    assert found is not None
    assert found.seconds == pytest.approx((0.5 + 3 * (3 + 1) * priced(2, 1),))


def test_without_any_run_a_rehearsal_is_priced_and_its_length_told(sweep: Sweep) -> None:
    found = sweep.forecast(*sweep.runs())
    assert found is not None
    assert (
        found.basis
        == "rehearsed answers of 256 tokens behind 128, whatever the task and the invented cost model"
    )
    names = [run.configuration for run in sweep.runs()]
    seconds = dict(zip(names, found.seconds, strict=True))
    assert seconds["k1_first"] == seconds["k1_last"]
    assert seconds["k2_first"] < seconds["k1_first"]


def test_both_are_told_where_only_one_task_was_run(sweep: Sweep) -> None:
    sweep.publish(sweep.run("k1_first"), 0.5 + priced(4, 8))
    found = sweep.forecast(sweep.run("k1_first"), sweep.run("k1_first", task="unmask_choice_text"))
    assert found is not None
    assert (
        "1 earlier run of the same tasks (else rehearsed answers of 256 tokens behind 128, whatever the task)"
        in found.basis
    )


def test_of_a_gpu_nothing_is_known_before_the_first_run_on_one(on_gpus: Sweep) -> None:
    assert on_gpus.forecast(on_gpus.run("k1_first")) is None
    on_gpus.publish(on_gpus.run("k1_first"), 0.5 + priced(4, 8))
    assert on_gpus.forecast(on_gpus.run("k1_last")) is None
    on_gpus.publish(on_gpus.run("k2_first"), 0.6, host="node17", device="cuda")
    assert on_gpus.forecast(on_gpus.run("k1_last")) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"answers": {"resumed": 2}},
        {"effect": {}},
        {"effect": {"generation": {"layer_calls": [1]}}},
        {"effect": {"generation": {"by_kind": 3, "layer_calls": "none"}}},
        {"environment": {"batch_size": "many"}},
        {"seconds": None},
    ],
    ids=["resumed", "nothing counted", "other layers", "odd", "odd batch", "no clock"],
)
def test_results_that_tell_nothing_are_left_out(sweep: Sweep, changes: dict[str, Any]) -> None:
    sweep.publish(sweep.run("k1_first"), 5.0, **changes)
    found = sweep.forecast(sweep.run("k1_last"))
    assert found is not None
    assert found.basis.startswith("rehearsed answers")


def test_runs_of_other_weights_or_examples_tell_nothing(sweep: Sweep) -> None:
    planned = sweep.run("k1_first")
    other = msgspec.json.decode(json.dumps(planned.identity))
    other["task"]["num_fewshot"] = 5
    sweep.publish(PlannedRun("accuracy", "k1_first", TASK, 4, other), 5.0)
    weights = {**planned.identity, "weights": "others"}
    sweep.publish(PlannedRun("accuracy", "k1_first", TASK, 4, weights), 5.0)
    found = sweep.forecast(sweep.run("k1_last"))
    assert found is not None
    assert found.basis.startswith("rehearsed answers")


def test_nothing_to_do_takes_no_forecast(sweep: Sweep) -> None:
    assert sweep.forecast() is None
