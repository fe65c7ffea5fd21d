"""Ceilings: dead plans are named, equal configurations are found, and rooflines say what they must."""

import subprocess
import sys
from typing import Any

import pytest

from policy_cases import BOTH, UNITS, adaptive, combine, reuse, trim
from unmask.cost import DEVICES, ModelShape
from unmask.policies.ceiling import Ceiling, ceiling_of, equal_by_construction
from unmask.policies.registry import policy_spec
from unmask.policies.rehearsal import Script

SEVEN_B = ModelShape(28, 3584, 18944, 28, 4, 128, 152064)
GPU = DEVICES["rtx6000"]


def ceiling(spec: dict[str, Any], **script: Any) -> Ceiling:
    return ceiling_of(policy_spec(spec), SEVEN_B, GPU, Script(**script))


@pytest.mark.parametrize(
    ("spec", "script", "reason"),
    [
        ({"kind": "full"}, {}, "it is the baseline"),
        (reuse(k=1, unit="output"), {}, "k = 1 recomputes at every step"),
        (trim(keep=1), {}, "keep = 1 keeps every row"),
        (trim(every=1), {}, "every = 1 recomputes every row at every step"),
        (adaptive(cap=0), {}, "its budget or its cap is 0"),
        (adaptive(budget=0), {}, "its budget or its cap is 0"),
        (reuse(on=["sub"]), {"cache": "none"}, "no step of kind sub comes late enough"),
        (reuse(on=["block"], warmup=99), {}, "no step of kind block comes late enough"),
        (
            reuse(on=BOTH),
            {"unmasked": (8,), "new_tokens": 8},
            "no step of kind sub or block comes late enough",
        ),
        (adaptive(budget=0.01), {}, "no step of this decoding meets its conditions"),
        (trim(every=2), {"unmasked": (32,), "sub_block_size": 32}, "no step of this decoding meets"),
    ],
)
def test_dead_plans_are_named(spec: dict[str, Any], script: dict[str, Any], reason: str) -> None:
    found = ceiling(spec, **script)
    assert found.dead is not None
    assert found.dead.startswith(reason)
    assert (found.flops_saved, found.bytes_saved, found.speedup) == (0, 0, 1)


@pytest.mark.parametrize(
    "spec",
    [
        *(reuse(unit=unit) for unit in UNITS),
        reuse(on=["block"]),
        trim(),
        trim(keep=0.9),
        adaptive(),
        combine(trim(), reuse()),
    ],
)
def test_living_plans_save_something(spec: dict[str, Any]) -> None:
    found = ceiling(spec)
    assert found.dead is None
    assert 0 < found.flops_saved < 1
    assert found.speedup >= 1
    assert (
        ceiling(spec | {"k": 3} if spec["kind"] == "layer_reuse" else spec).flops_saved >= found.flops_saved
    )


def test_at_batch_1_a_gpu_reads_all_weights_so_trim_saves_no_time_there_and_layer_skipping_does() -> None:
    rows, layers = ceiling(trim()), ceiling(reuse(k=2, unit="residual", on=BOTH))
    assert rows.flops_saved > 0.1
    assert rows.bytes_saved < 0.001
    assert rows.speedup == pytest.approx(1, abs=0.01)
    assert layers.speedup > 1.15
    assert layers.bytes_saved > 0.15
    no_cache = ceiling(trim(), cache="none")
    assert no_cache.flops_saved > 0.4
    assert no_cache.speedup == pytest.approx(1, abs=0.01)


def test_output_replay_reads_only_the_head() -> None:
    found = ceiling(reuse(k=2, unit="output"))
    assert found.speedup > ceiling(reuse(k=2, unit="residual", layers=["1-27"])).speedup


def test_the_seeds_aim_of_a_fifth_at_k_2_was_out_of_reach() -> None:
    """12 of 28 layers, sub-block steps alone: even the roofline gives less than 1.2."""
    two, three = (ceiling(reuse(k=k, size=12, on=["sub"])).speedup for k in (2, 3))
    assert 1.05 < two < 1.2
    assert two < three


def groups(*specs: dict[str, Any]) -> list[list[int]]:
    return equal_by_construction([policy_spec(spec) for spec in specs], 28)


def test_all_k_1_are_equal() -> None:
    grid = [reuse(k=1, unit=unit, layers=layers) for unit in UNITS for layers in ("first", "last")]
    assert groups(*grid) == [list(range(8))]
    assert groups({"kind": "full"}, trim(keep=1), reuse(k=1), adaptive(cap=0), reuse()) == [[0, 1, 2, 3]]


def test_the_published_grid_has_three_configurations_not_nine() -> None:
    grid = [
        reuse(k=k, unit="output", layers=layers) for k in (1, 2, 3) for layers in ("first", "middle", "last")
    ]
    assert groups(*grid) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_other_units_do_depend_on_the_layers() -> None:
    for unit in ("residual", "attention", "mlp"):
        assert groups(*(reuse(unit=unit, layers=layers) for layers in ("first", "middle", "last"))) == []


def test_the_same_thing_written_otherwise() -> None:
    assert groups(reuse(layers="last"), reuse(layers=["16-27"]), reuse(layers="last", size=11)) == [[0, 1]]
    assert groups(reuse(on=["sub", "block"]), reuse(on=["block", "sub"])) == [[0, 1]]
    assert groups(reuse(k=3, warmup=3), reuse(k=3, warmup=4), reuse(k=3, warmup=5)) == [[0, 1]]
    assert groups(adaptive(), adaptive(on=["block", "sub"]), adaptive(cap=3)) == [[0, 1]]
    assert groups(trim(probe_layer=3), trim(), trim(keep=0.5), trim(keep=0.5, probe_layer=3)) == [[0, 1]]
    outputs = [combine(trim(), reuse(unit="output", layers=layers)) for layers in ("first", "last")]
    assert groups(*outputs, combine(trim(), reuse())) == [[0, 1]]
    own = {"kind": "custom", "target": "a:B", "options": {"x": 1, "y": [2]}}
    other = {"kind": "custom", "target": "a:B", "options": {"x": 2}}
    assert groups(own, dict(reversed(own.items())), other) == [[0, 1]]


def test_ceilings_need_no_torch() -> None:
    code = (
        "import sys, unmask.policies.ceiling, unmask.policies.registry, unmask.cost, unmask.spec;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_not_known_of_the_steps_is_taken_at_its_best() -> None:
    """Steps that leave the first position unknown are followed by full-block steps, where TRIM acts."""
    never, always, unknown = {"leftmost": (False,)}, {"leftmost": (True,)}, {}
    for spec, better in ((trim(keep=0), never), (reuse(k=2, unit="residual"), always)):
        worse = always if better is never else never
        best, other, most = (ceiling(spec, **script) for script in (better, worse, unknown))
        assert best.flops_saved > other.flops_saved
        assert most.flops_saved == best.flops_saved
        assert most.speedup == max(best.speedup, other.speedup)
    idle = {"unmasked": (8,)}
    assert ceiling(reuse(on=["sub"]), **idle).dead, "dead in both cases"
