"""Counted work adds up."""

import json

from unmask.cost import Ledger, Work

BLOCK = Work("block", rows=32, pairs=32 * 64, reads=8)
SUB = Work("sub", rows=8, pairs=8 * 64, reads=3)


def ledger_of(*entries: Work, layers: int = 3) -> Ledger:
    ledger = Ledger(layers)
    for work in entries:
        ledger.add(work)
    return ledger


def test_steps_and_rows_by_kind() -> None:
    ledger = ledger_of(BLOCK, SUB, SUB)
    assert ledger.steps() == {"prefill": 0, "block": 1, "sub": 2, "commit": 0}
    assert ledger.rows() == {"prefill": 0, "block": 32, "sub": 16, "commit": 0}
    assert ledger_of().steps() == {"prefill": 0, "block": 0, "sub": 0, "commit": 0}


def test_the_order_of_work_does_not_matter() -> None:
    assert ledger_of(BLOCK, SUB, SUB) == ledger_of(SUB, BLOCK, SUB)
    assert ledger_of(BLOCK, SUB) != ledger_of(BLOCK, SUB, SUB)


def test_a_layer_is_called_where_any_of_its_branches_ran_on_any_row() -> None:
    partial = Work("sub", 8, 8 * 64, 3, attention=(8, 0, 0), mlp=(8, 4, 0))
    assert ledger_of(BLOCK, partial, partial).layer_calls() == [3, 3, 1]
    replayed = Work("sub", 8, 8 * 64, 3, attention=(0, 0, 0), mlp=(0, 0, 0))
    assert ledger_of(BLOCK, replayed).layer_calls() == [1, 1, 1]
    assert ledger_of(BLOCK, replayed).steps()["sub"] == 1, "a replayed step is a step"


def test_merging_adds() -> None:
    merged = ledger_of(BLOCK, SUB).merged(ledger_of(SUB))
    assert merged == ledger_of(BLOCK, SUB, SUB)


def test_the_summary_is_plain_data() -> None:
    summary = ledger_of(BLOCK, SUB).as_dict()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["layer_calls"] == [2, 2, 2]
