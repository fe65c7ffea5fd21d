"""Combinations: a plan built by both, or a reason why not."""

from dataclasses import replace
from typing import Any

import pytest

from policy_cases import BOTH, LAYERS, PROMPTS, Recorder, adaptive, combine, one, reuse, trim
from unmask.engine.step_plan import Op
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy

PAIRS = [
    (trim(), reuse(on=BOTH)),
    (trim(every=2), reuse(k=3, unit="attention", layers="first", on=BOTH)),
    (trim(keep=0.4), reuse(unit="mlp", layers="last", on=BOTH)),
    (trim(), adaptive(max_drift=10)),
    (trim(), reuse(unit="output", on=BOTH)),
]


@pytest.mark.parametrize(("rows", "layers"), PAIRS)
def test_the_plan_is_built_by_both(rows: dict[str, Any], layers: dict[str, Any]) -> None:
    recorder = Recorder(combine(rows, layers))
    found = one(PROMPTS[1], recorder)
    by_rows, by_layers = make_policy(rows, LAYERS), make_policy(layers, LAYERS)
    both = 0
    for view, plan in zip(recorder.views, recorder.plans, strict=True):
        left = by_rows.plan(view).rows
        expected = by_layers.plan(view if left is None else view.narrowed((*left.always, *left.among)))
        if not expected.replays_everything:
            expected = replace(expected, rows=left)
        assert plan == expected
        both += plan.rows is not None and len(plan.rows.always) < 16 and Op.REPLAY in plan.ops
    assert both or layers.get("unit") == "output"
    ledger = found.generation.ledger
    parts = [one(PROMPTS[1], policy).generation.ledger for policy in (rows, layers)]
    assert ledger.reuse_fraction() > max(part.reuse_fraction() for part in parts)


@pytest.mark.parametrize(
    ("rows", "layers", "reason"),
    [
        (trim(keep=1), reuse(), "because keep = 1 keeps every row; use layer_reuse alone"),
        (trim(every=1), reuse(), "because every = 1 recomputes every row"),
        (trim(), reuse(k=1), "because k = 1 recomputes at every step; use trim alone"),
        (trim(), adaptive(budget=0), "nothing to combine, because its budget or its cap is 0"),
        (trim(), adaptive(cap=0), "nothing to combine, because its budget or its cap is 0"),
        (trim(keep=0.5), adaptive(), "both probe"),
        (trim(keep=0.5), reuse(layers="first"), "layer 1 is to be reused"),
        (trim(keep=0.5, probe_layer=3), reuse(layers=[2, 5]), "probes at layer 3"),
        (trim(keep=0.5, probe_layer=6), reuse(), "probe_layer is 6"),
        (trim(), reuse(size=6), "size is 6"),
    ],
)
def test_a_combination_that_makes_no_sense_is_refused_with_its_reason(
    rows: dict[str, Any], layers: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnmaskError, match=reason):
        make_policy(combine(rows, layers), LAYERS)


def test_only_rows_and_layers_can_be_combined() -> None:
    for rows, layers in ((reuse(), reuse()), (trim(), trim()), (trim(), {"kind": "full"})):
        with pytest.raises(UnmaskError, match="Policy: Invalid value"):
            make_policy(combine(rows, layers), LAYERS)
